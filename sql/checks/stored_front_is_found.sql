-- Layouts that are on the front of a problem by table stored_front or by view found_front alone.
--
-- View problem_front, and all fronts, are read from the table.
with stored as (
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(stored_front) as layout
    from stored_front
),

found as (
    select
        cell_id,
        problem_id,
        step_seconds,
        memory_bytes,
        layout_in_words(found_front) as layout
    from found_front
)

(
    select
        *,
        true as is_stored
    from stored
    except all
    select
        *,
        true as is_stored
    from found
)
union all
(
    select
        *,
        false as is_stored
    from found
    except all
    select
        *,
        false as is_stored
    from stored
)
