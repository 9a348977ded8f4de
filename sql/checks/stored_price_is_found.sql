-- Names of accelerators whose price and power differ between table stored_price and the references.
--
-- Views price runs by the table alone.
(
    select
        *,
        true as is_stored
    from stored_price
    except all
    select
        *,
        true as is_stored
    from found_price
)
union all
(
    select
        *,
        false as is_stored
    from found_price
    except all
    select
        *,
        false as is_stored
    from stored_price
)
