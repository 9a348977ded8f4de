-- The best layouts of two models, accelerators, problems or cells, compared.
-- Grain: one row per pair of problems, version of their estimator and variant, or the pair of cells
-- Key: problem_id, other_problem_id, estimator, estimator_version, variant
--
-- compare('gpt3_175B', 'gpt3_1T') pairs problems on the same accelerator, NVLink domain, number of
-- GPUs and batch, under the same assumptions, by the same estimator and variant; compare('A100',
-- 'B200') pairs those of the same model. Two ids of problems, as numbers or text, are paired by the
-- same estimator and variant; two ids of cells always. Names may have any spelling; there is no row
-- where nothing stored pairs. Ratios are the second's over the first's. View
-- run_per_trillion_tokens, joined with itself, pairs any two.
-- Example: from compare('A100', 'B200') limit 5
create or replace macro compare(first_name, second_name) as table
    with found as materialized (
        select *
        from best_of_cell
    ),

    named as (
        select
            estimator,
            estimator_version,
            variant,
            problem_id,
            min(struct_pack(best := best, best_layout := best_layout))
            filter (where best is not null) as fastest,
            'problem' as kind,
            problem_id as named_id
        from found
        group by problem_id, estimator, estimator_version, variant
        union all by name
        select
            estimator,
            estimator_version,
            variant,
            problem_id,
            struct_pack(best := best, best_layout := best_layout) as fastest,
            'cell' as kind,
            cell_id as named_id
        from found
    ),

    called as (
        select
            named.*,
            problem_group.model,
            problem_group.model_shape,
            problem_group.accelerator,
            problem_group.system_changes,
            problem_group.assumptions,
            problem_group.nvlink_size,
            problem_group.num_gpus,
            problem_group.global_batch_size,
            problem_group.step_tokens,
            unnest(
                case named.kind
                    when 'cell' then [cast(named.named_id as varchar)]
                    else [
                        cast(named.named_id as varchar),
                        problem_group.model,
                        problem_group.accelerator
                    ]
                end
            ) as called_by,
            unnest(
                case named.kind
                    when 'cell' then ['cell']
                    else ['problem', 'model', 'accelerator']
                end
            ) as called_as
        from named
        inner join problem_group on named.problem_id = problem_group.problem_id
    ),

    first_asked as materialized (
        select *
        from
            name_asked('first_name', first_name, ['model', 'accelerator', 'problem', 'cell'])
    ),

    second_asked as materialized (
        select *
        from
            name_asked('second_name', second_name, ['model', 'accelerator', 'problem', 'cell'])
    ),

    -- the kind of both names: a model and an accelerator cannot be compared
    asked as materialized (
        select
            coalesce(
                list(
                    struct_pack(
                        name_kind := first_asked.name_kind,
                        first_known := first_asked.known_name,
                        second_known := second_asked.known_name
                    )
                ),
                []
            ) as pairs
        from first_asked
        inner join second_asked on first_asked.name_kind = second_asked.name_kind
    ),

    asked_pair as materialized (
        select
            unnest(
                case
                    when len(pairs) > 0 then pairs
                    else error(
                        '`second_name` "' || second_name || '": is not what `first_name` "'
                        || first_name || '" is: a model, an accelerator, a problem or a cell'
                    )
                end,
                recursive := true
            )
        from asked
    ),

    first_called as materialized (
        select called.*
        from called
        inner join asked_pair
            on
                called.called_as = asked_pair.name_kind
                and called.called_by = asked_pair.first_known
    ),

    second_called as materialized (
        select called.*
        from called
        inner join asked_pair
            on
                called.called_as = asked_pair.name_kind
                and called.called_by = asked_pair.second_known
    )

    select
        first_called.estimator,
        first_called.estimator_version,
        first_called.variant,
        second_called.estimator as other_estimator,
        second_called.estimator_version as other_estimator_version,
        second_called.variant as other_variant,

        first_called.model,
        second_called.model as other_model,
        first_called.accelerator,
        second_called.accelerator as other_accelerator,
        first_called.assumptions,
        second_called.assumptions as other_assumptions,
        first_called.nvlink_size,
        second_called.nvlink_size as other_nvlink_size,
        first_called.num_gpus,
        second_called.num_gpus as other_num_gpus,
        first_called.global_batch_size,
        second_called.global_batch_size as other_global_batch_size,

        first_called.fastest.best_layout,
        second_called.fastest.best_layout as other_best_layout,
        first_called.fastest.best.step_seconds as best_step_seconds,
        second_called.fastest.best.step_seconds as other_best_step_seconds,
        other_best_step_seconds / best_step_seconds as step_ratio,
        first_called.step_tokens / best_step_seconds as tokens_per_second,
        second_called.step_tokens / other_best_step_seconds as other_tokens_per_second,
        first_called.fastest.best.memory_bytes as best_memory_bytes,
        second_called.fastest.best.memory_bytes as other_best_memory_bytes,
        other_best_memory_bytes / best_memory_bytes as memory_ratio,
        first_called.problem_id,
        second_called.problem_id as other_problem_id
    from first_called
    inner join second_called on first_called.called_as = second_called.called_as
    where
        first_called.called_as = 'cell'
        or (
            first_called.estimator = second_called.estimator
            and first_called.estimator_version = second_called.estimator_version
            and first_called.variant = second_called.variant
            and (
                first_called.called_as = 'problem'
                or (
                    first_called.num_gpus is not distinct from second_called.num_gpus
                    and first_called.nvlink_size is not distinct from second_called.nvlink_size
                    and first_called.system_changes
                    is not distinct from second_called.system_changes
                    and first_called.assumptions is not distinct from second_called.assumptions
                    and first_called.global_batch_size
                    is not distinct from second_called.global_batch_size
                    and case first_called.called_as
                        when 'model' then first_called.accelerator
                        else first_called.model_shape
                    end
                    is not distinct from case first_called.called_as
                        when 'model' then second_called.accelerator
                        else second_called.model_shape
                    end
                )
            )
        );
