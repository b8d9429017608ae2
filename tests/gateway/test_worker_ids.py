"""Ids that say which worker gave them out."""

from fairlead.gateway.worker_ids import home_of, owner_of, prefix_of


def test_an_id_says_whose_it_is() -> None:
    made = f"{prefix_of(12)}0123abcd"
    assert owner_of(made) == 12


def test_other_texts_have_no_owner() -> None:
    for text in ("", "0123abcd", "w-1", "w0-abc", "w1234-abc", "x1-abc", " w1-abc"):
        assert owner_of(text) is None


def test_a_name_has_one_home_and_moves_only_when_that_goes() -> None:
    names = [b"session %d" % number for number in range(300)]
    homes = {name: home_of(name, (1, 2, 3)) for name in names}
    assert homes == {name: home_of(name, (3, 1, 2)) for name in names}
    assert all(list(homes.values()).count(number) > 50 for number in (1, 2, 3))
    without = {name: home_of(name, (1, 3)) for name in names}
    assert all(without[name] == home for name, home in homes.items() if home != 2)
    assert home_of(b"any", ()) is None
