-- A team's runs that published_accuracy leaves out, with the reason.
-- Grain: one row per name of the runs and run
-- Key: reference, measured_row
with constants as (
    select
        problem_id,
        string_agg(constant_name, ', ' order by constant_name) as constant_names
    from changed_constant
    group by problem_id
)

select
    measurement.reference,
    measurement.measured_row,
    case
        when measurement.num_experts > 1 or measurement.precision in ('fp8', 'fp4')
            then 'rates are counted and compared of dense models in 16 bits'
        when measurement.framework is null
            then 'its program is not known: the estimator that completed it has no frameworks'
        when measurement.vocab_size is null
            then 'without `vocab_size` the FLOPs of the output layer are not known'
        when accelerator.accelerator is null
            then 'the accelerator is not one of table accelerator'
        when constants.constant_names is not null then 'it has its own ' || constants.constant_names
        when problem.profile <> 'default'
            then 'it was evaluated with the profile ' || problem.profile
        else 'no estimate of exactly its configuration is one with published constants'
    end as reason
from measurement
inner join problem on measurement.problem_id = problem.problem_id
left join accelerator on measurement.accelerator = accelerator.accelerator
left join constants on measurement.problem_id = constants.problem_id
anti join published_comparison as compared
    on
        measurement.reference = compared.reference
        and measurement.measured_row = compared.published_row
