-- How much of each study is stored; questions of plan are no studies.
-- Grain: one row per study
-- Key: study
select
    study.study,
    study.study_file,
    study.estimator,
    study.created_at,
    study.num_cells,
    count(cell.cell_id) as num_cells_done,
    study.num_rows,
    cast(coalesce(sum(cell.num_rows), 0) as bigint) as num_rows_done,
    max(cell.evaluated_at) as evaluated_at,
    cast(coalesce(sum(cell.num_rows) filter (where cell.is_superseded), 0) as bigint)
        as superseded_rows
from study
left join study_cell on study.study = study_cell.study
left join cell on study_cell.cell_id = cell.cell_id
where not (study.study_file = 'plan' and starts_with(study.study, 'plan '))
group by all
