"""Study files: the values of a good one, and the error of every faulty one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from estimators import registry
from tests.small_estimator import SmallEstimator
from warehouse.errors import InputError
from warehouse.studies.study import MAX_COMBINATIONS, Study, load_study, under
from warehouse.studies.variants import parse_variants

HEAD = 'name = "a question"\nestimator = "small"\n'
GOOD = HEAD + '[space]\nmodel = "tiny"\nnum_gpus = [2, 4]\n'


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> SmallEstimator:
    """Register the small estimator, and one without a search."""
    estimator = SmallEstimator()
    unsearchable = SmallEstimator()
    unsearchable.search = None
    named = {"small": estimator, "unsearchable": unsearchable}
    get = registry.get
    monkeypatch.setattr(registry, "get", lambda name: named.get(name) or get(name))
    return estimator


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], Study]:
    """Write a study and load it by the relative name a user would give."""
    monkeypatch.chdir(tmp_path)

    def load(text: str | bytes) -> Study:
        path = tmp_path / "study.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_study(path.relative_to(tmp_path))

    return load


@pytest.fixture
def refusal(load: Callable[[str | bytes], Study]) -> Callable[[str | bytes], str]:
    def refusal(text: str | bytes) -> str:
        with pytest.raises(InputError) as caught:
            load(text)
        assert caught.value.exit_code == 3
        assert str(caught.value).startswith("study.toml: ")
        return str(caught.value)

    return refusal


def test_one_space_takes_values_lists_ranges_and_overrides(
    load: Callable[[str | bytes], Study],
) -> None:
    study = load(
        HEAD + "[system]\nhbm_bytes = {linear = [1e9, 3e9, 3]}\n"
        '[space]\nnum_gpus = {powers_of_two = [2, 4]}\nmodel = "tiny"\n'
    )
    assert study.name == "a question"
    assert study.estimator == "small"
    assert study.file == "study.toml"
    assert study.spaces == (
        {"model": ("tiny",), "num_gpus": (4, 8, 16), "hbm_bytes": (1e9, 2e9, 3e9)},
    )


def test_the_order_of_keys_makes_no_difference(load: Callable[[str | bytes], Study]) -> None:
    one = load(HEAD + '[space]\nmodel = "tiny"\nnum_gpus = 2\n')
    two = load(HEAD + '[space]\nnum_gpus = 2\nmodel = "tiny"\n')
    assert list(one.spaces[0]) == list(two.spaces[0])
    assert one.definition == two.definition


def test_the_definition_is_json_with_ranges_expanded(load: Callable[[str | bytes], Study]) -> None:
    study = load(
        'description = "why"\nvariant = "both"\n'
        + HEAD
        + "[space]\nnum_gpus = {linear = [1, 3, 3]}"
    )
    assert json.loads(json.dumps(study.definition)) == {
        "name": "a question",
        "description": "why",
        "estimator": "small",
        "mends": [[], ["S1", "S2"]],
        "spaces": [{"num_gpus": [1, 2, 3]}],
    }


@pytest.mark.parametrize(
    ("line", "mends"),
    [
        ("", [{"S1", "S2"}]),
        ('variant = "corrected"', [{"S1", "S2"}]),
        ('variant = "published"', [set()]),
        ('variant = "both"', [set(), {"S1", "S2"}]),
        ('variant = "each"', [set(), {"S1"}, {"S2"}, {"S1", "S2"}]),
        ('mends = ["S2"]', [{"S2"}]),
        ("mends = []", [set()]),
    ],
)
def test_a_variant_is_a_set_of_mends(
    load: Callable[[str | bytes], Study], line: str, mends: list[set[str]]
) -> None:
    assert list(load(f"{line}\n{GOOD}").mends) == mends


@pytest.mark.parametrize("variant", ["both", "each"])
def test_an_estimator_without_mends_has_one_variant(
    load: Callable[[str | bytes], Study], small: SmallEstimator, variant: str
) -> None:
    small.mends = ()
    assert load(f'variant = "{variant}"\n{GOOD}').mends == (frozenset(),)


def test_a_single_mend_alone_is_all_of_them(
    load: Callable[[str | bytes], Study], small: SmallEstimator
) -> None:
    small.mends = ("S1",)
    assert load(f'variant = "each"\n{GOOD}').mends == (frozenset(), frozenset({"S1"}))


def test_each_case_is_a_space_of_its_own_over_the_common_values(
    load: Callable[[str | bytes], Study],
) -> None:
    study = load(
        GOOD + "[system]\nhbm_bytes = 5\n"
        "[[case]]\nnum_gpus = 8\nglobal_batch_size = 16\n"
        '[[case]]\nhbm_bytes = [6, 7]\nmodel = "other"\n'
    )
    assert study.spaces == (
        {"model": ("tiny",), "num_gpus": (8,), "global_batch_size": (16,), "hbm_bytes": (5.0,)},
        {"model": ("other",), "num_gpus": (2, 4), "hbm_bytes": (6.0, 7.0)},
    )


COUPLED = GOOD + "[[coupled]]\nnvlink_size = [4, 8, 8]\nhbm_bytes = [1, 1, 2]\n"


def test_coupled_values_change_together(load: Callable[[str | bytes], Study]) -> None:
    assert load(COUPLED).spaces == tuple(
        {"model": ("tiny",), "num_gpus": (2, 4), "nvlink_size": (size,), "hbm_bytes": (memory,)}
        for size, memory in ((4, 1.0), (8, 1.0), (8, 2.0))
    )


def test_groups_of_coupled_values_and_cases_are_crossed(
    load: Callable[[str | bytes], Study],
) -> None:
    study = load(
        COUPLED.replace("[4, 8, 8]", "{powers_of_two = [2, 3]}").replace("[1, 1, 2]", "[1, 2]")
        + "[[coupled]]\nglobal_batch_size = [16, 32]\ndata_parallel = [1, 2]\n"
        "[[case]]\n[[case]]\nnum_gpus = 8\n"
    )
    found = [
        [space[name][0] for name in ("num_gpus", "nvlink_size", "global_batch_size")]
        for space in study.spaces
    ]
    assert found == [
        [num_gpus, size, batch] for num_gpus in (2, 8) for size in (4, 8) for batch in (16, 32)
    ]
    assert study.spaces[0]["num_gpus"] == (2, 4)
    assert study.spaces[3] == {
        **study.spaces[0],
        "nvlink_size": (8,),
        "hbm_bytes": (2.0,),
        "global_batch_size": (32,),
        "data_parallel": (2,),
    }


def test_a_file_that_starts_with_a_byte_order_mark_is_read(
    load: Callable[[str | bytes], Study],
) -> None:
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).name == "a question"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["is empty", "hint: a study needs name"]),
        (" \n\n", ["is empty"]),
        (b"name = '\xff'", ["line 1 is not UTF-8"]),
        ("name = \n", ["not valid TOML", "line 1", "the line reads: name ="]),
        (GOOD + "num_gpus = 5\n", ["not valid TOML"]),
        ("x = " + "[" * 5000, ["study.toml: is n"]),
        ("x = 1" + "0" * 5000, ["not valid TOML"]),
        ('estimator = "small"\n[space]\nnum_gpus = 1', ["`name` is missing"]),
        ('name = ""\n' + GOOD.replace('name = "a question"\n', ""), ["`name`", "printed"]),
        ("name = 3\n" + GOOD.replace('name = "a question"\n', ""), ["`name` 3 must be a text"]),
        ('name = "x"\n[space]\nnum_gpus = 1', ["`estimator` is missing"]),
        ('name = "x"\nestimator = "rooflin"', ['`estimator` "rooflin" is not known', "roofline"]),
        ('name = "x"\nestimator = 5', ["`estimator` 5 must be a text"]),
        (
            'name = "x"\nestimator = "unsearchable"',
            ["no search space to sweep", "warehouse evaluate --estimator unsearchable"],
        ),
        ("description = 3\n" + GOOD, ["`description` 3 must be a text"]),
        ('variant = "correct"\n' + GOOD, ['`variant` "correct" is not known', "both"]),
        ("variant = 1\n" + GOOD, ["`variant` 1 is not known"]),
        ('variant = "S1,S9"\n' + GOOD, ['`mends` "S9" is not a mend of small']),
        ('mends = ["R1"]\n' + GOOD, ['`mends` "R1" is not a mend of small', "known: S1, S2"]),
        ('mends = ["S1", "S1"]\n' + GOOD, ['`mends` "S1" is given twice']),
        ('mends = "S1"\n' + GOOD, ["must be a list of texts"]),
        ("mends = [1]\n" + GOOD, ["must be a list of texts"]),
        ('mends = ["S1"]\nvariant = "both"\n' + GOOD, ["cannot be combined with `variant`"]),
        ('spice = "x"\n' + GOOD, ["`spice`", "is not a key of a study", "space?"]),
        (
            "num_gpus = 5\n" + GOOD,
            ["`num_gpus` 5 is not a key of a study", "the end of the file, below a line [space]"],
        ),
        ("hbm_bytes = 5\n" + GOOD, ["below a line [system]"]),
        ("num_gpus = 5", ["`name` is", "`estimator` is", "`num_gpus` 5 is not", "a line [space]"]),
        (
            '[space]\nnum_gpus = 5\nname = "x"\nestimator = "small"',
            ["`name` is", "`estimator` is missing", "top of the file: now it is below", "[space]"],
        ),
        (HEAD, ["`space` (none) is empty"]),
        (HEAD + "[space]\n", ["`space` (none) is empty"]),
        (HEAD + "space = 5", ["`space` 5 must be a table"]),
        (GOOD + "nun_heads = 5", ["`nun_heads` 5 is not a key of [space]", "hint: "]),
        (GOOD + "num_gpu = 5", ["did you mean num_gpus?"]),
        (GOOD + "hbm_bytes = 5", ["`hbm_bytes` 5 is not a key of [space]", "move it to [system]"]),
        (GOOD + "[system]\nnvlink_size = 5", ["not a key of [system]", "move it to [space]"]),
        (GOOD + "data_parallel = 0", ["`data_parallel` 0 must be at least 1"]),
        (GOOD + "data_parallel = true", ["`data_parallel` True must be a whole number"]),
        (GOOD + "data_parallel = nan", ["`data_parallel` nan is not a finite number"]),
        (GOOD + "data_parallel = 1979-05-27", ['"1979-05-27" must be a whole number']),
        (GOOD + "data_parallel = []", ['`data_parallel` "[]" is empty']),
        (GOOD + "data_parallel = [2, 2]", ["`data_parallel` 2 is given twice"]),
        (GOOD + f"[system]\nhbm_bytes = {10**400}", ["100000000000...", "is too large"]),
        (GOOD + "strategy = 'x'", ['`strategy` "x" is not known', "use tensor_1d, summa_2d"]),
        (HEAD + "[case]\nnum_gpus = 5", ["`case`", "array of tables", "[[case]]"]),
        ("case = []\n" + GOOD, ["`case`", "array of tables"]),
        (GOOD + "[[case]]\nnum_gpus = 5\n[[case]]\nnum_gpus = 0", ["0 in [[case]] 2 must be"]),
        (GOOD + "[[case]]\nnum_gpu = 5", ["5 in [[case]] 1 is not a key", "num_gpus?"]),
        (
            GOOD + "[[case]]\nnum_gpus = 5\n[[case]]\nnum_gpus = 5",
            ["2 asks the same as [[case]] 1"],
        ),
        (GOOD + "[[case]]\nnum_gpus = [2, 4]\n[[case]]", ["2 asks the same as [[case]] 1"]),
        (GOOD + "[coupled]\nhbm_bytes = [1, 2]", ["`coupled`", "array of tables", "[[coupled]]"]),
        (COUPLED.replace("8, 8", "8"), ["[[coupled]] 1 needs lists of one", "nvlink_size has 2"]),
        (COUPLED.replace("1, 1, 2", "1, 2, 2"), ["3 in [[coupled]] 1 is the same step as 2"]),
        (COUPLED.replace("nvlink_size = [4, 8, 8]", ""), ["needs two keys or more"]),
        (GOOD + "[[coupled]]\nnvlink_size = 4\nhbm_bytes = 1", ["with two values or more"]),
        (COUPLED.replace("hbm_bytes", "hbm_byte"), ["is not a key of [[coupled]]", "hbm_bytes"]),
        (COUPLED.replace("4, 8", "0, 8"), ["`nvlink_size` 0 in [[coupled]] 1 must be at least"]),
        (COUPLED.replace("nvlink_size", "num_gpus"), ["`num_gpus`", "1 is named elsewhere"]),
        (COUPLED + "[[case]]\nnvlink_size = 2", ["`nvlink_size`", "1 is named elsewhere"]),
        (COUPLED + COUPLED.removeprefix(GOOD), ["in [[coupled]] 2 is named elsewhere"]),
        (
            GOOD
            + "[[coupled]]\nnvlink_size = {linear = [1, 200, 200]}\n"
            + "hbm_bytes = {linear = [1, 200, 200]}\n[[coupled]]\n"
            + "nvlink_efficiency = {linear = [0.1, 1, 200]}\n"
            + "data_parallel = {linear = [1, 200, 200]}",
            ["has 40,000 combinations of steps, more than 10,000"],
        ),
        (
            GOOD.replace("[2, 4]", "{linear = [1, 10000, 10000]}")
            + "data_parallel = {linear = [1, 10000, 10000]}",
            ["has 100,000,000 combinations", f"{MAX_COMBINATIONS:,}", "`num_gpus` has 10,000"],
        ),
    ],
)
def test_a_faulty_study_is_refused_with_file_key_value_and_reason(
    refusal: Callable[[str | bytes], str], text: bytes | str, expected: list[str]
) -> None:
    message = refusal(text)
    for part in expected:
        assert part in message


def test_all_faults_are_reported_at_once(refusal: Callable[[str | bytes], str]) -> None:
    message = refusal(
        'variant = "x"\nextra = 1\n' + GOOD + "data_parallel = [0, 2.5]\ntensor_paralel = 8\n"
        "[system]\nhbm_bytes = -1\n[[case]]\nnvlink_size = 0"
    )
    for key in (
        "variant",
        "extra",
        "data_parallel` 0",
        "data_parallel` 2.5",
        "tensor_paralel",
        "hbm_bytes",
        "nvlink_size",
    ):
        assert f"`{key}" in message


def test_a_missing_file_is_refused_by_the_name_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^none\.toml: there is no such file$"):
        load_study(tmp_path.joinpath("none.toml").relative_to(tmp_path))


def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a directory"):
        load_study(tmp_path)


def test_a_study_under_another_variant_is_named_after_both(
    load: Callable[[str | bytes], Study], small: SmallEstimator
) -> None:
    study = load(f'mends = ["S2"]\n{GOOD}')
    other = under(study, parse_variants(small, "each"), "each")
    assert other.name == other.definition["name"] == "a question each"
    assert other.definition["mends"] == [[], ["S1"], ["S2"], ["S1", "S2"]]
    assert (other.mends, other.spaces) == (parse_variants(small, "each"), study.spaces)
    assert under(study, (frozenset({"S2"}),), "S2") is study
