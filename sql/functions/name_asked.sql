-- The models, accelerators, problems and cells that a name may mean.
-- Grain: one row per kind of name
-- Key: name_kind
--
-- name_kinds lists the kinds to look for, as in name_spelling. Without an exact spelling of a kind,
-- the one name that differs only in capitals, spaces and hyphens is taken, if there is just one.
-- Where no kind has the name, the error names the argument, the value and the nearest names. View
-- name_spelling has all names.
-- Example: from name_asked('asked_model', 'GPT3-1t', ['model'])
create or replace macro name_asked(argument_name, asked, name_kinds) as table
    with known as (
        select
            name_kind,
            spelling,
            known_name,
            spelling_place
        from name_spelling
        where list_contains(name_kinds, name_kind)
    ),

    alike as (
        select
            name_kind,
            min_by(known_name, spelling_place) filter (where spelling = cast(asked as varchar))
                as spelt_name,
            case when count(distinct known_name) = 1 then min(known_name) end as alike_name
        from known
        where
            spelling = cast(asked as varchar)
            or folded_name(spelling) = folded_name(cast(asked as varchar))
        group by name_kind
    ),

    found as (
        select
            coalesce(
                list(
                    struct_pack(
                        name_kind := name_kind, known_name := coalesce(spelt_name, alike_name)
                    )
                )
                filter (where coalesce(spelt_name, alike_name) is not null),
                []
            ) as meanings
        from alike
    ),

    likeness as (
        select
            known_name,
            -- nothing is near to nothing
            coalesce(
                max(jaro_winkler_similarity(lower(spelling), lower(cast(asked as varchar)))), 0
            ) as similarity,
            min(spelling_place) as spelling_place
        from known
        where name_kind in ('model', 'accelerator')
        group by known_name
    ),

    near as (
        select
            case when max(similarity) >= 0.7 then 'did you mean ' else 'known: ' end
            || array_to_string(
                list(known_name order by similarity desc, spelling_place asc, known_name asc)[1:3],
                ', '
            ) as nearest
        from likeness
    )

    select
        unnest(
            case
                when len(found.meanings) > 0 then found.meanings
                else error(
                    '`' || argument_name || '` '
                    || coalesce('"' || cast(asked as varchar) || '"', 'NULL')
                    || ': names no ' || array_to_string(name_kinds, ' or ')
                    || ' that is stored or known' || chr(10)
                    || 'hint: ' || coalesce(near.nearest, 'nothing is stored')
                )
            end,
            recursive := true
        )
    from found
    cross join near;
