-- Layouts that are on the front of a problem by table stored_front or by view found_front alone.
--
-- View problem_front, and all fronts, are read from the table.
(
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(stored_front) as layout,
        true as is_stored
    from stored_front
    except all
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(found_front) as layout,
        true as is_stored
    from found_front
)
union all
(
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(found_front) as layout,
        false as is_stored
    from found_front
    except all
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(stored_front) as layout,
        false as is_stored
    from stored_front
)
