"""One look a second, whoever looks, and none for nobody."""

from __future__ import annotations

import asyncio
import threading

import pytest

from serve_app.console import lookout as lookout_module
from serve_app.console.lookout import MOST_LOOKERS, Lookout, Snapshot
from serve_app.http.service import Overloaded

EVERY = 0.05


async def test_all_who_look_share_one_look_and_without_them_there_is_none() -> None:
    looks: list[int] = []

    def look() -> Snapshot:
        looks.append(threading.get_ident())
        return Snapshot({"number": len(looks)}, [])

    lookout = Lookout(look, EVERY)
    seen = await asyncio.gather(*(lookout.next() for _ in range(10)))
    assert len({id(one) for one in seen}) == len(looks) == 1
    assert looks[0] != threading.get_ident()
    began = asyncio.get_running_loop().time()
    for _ in range(4):
        await asyncio.gather(*(lookout.next() for _ in range(3)))
    assert len(looks) == 5
    assert asyncio.get_running_loop().time() - began > 3 * EVERY
    await asyncio.sleep(3 * EVERY)
    assert len(looks) == 5


async def test_one_who_leaves_takes_no_look_from_the_others() -> None:
    go = threading.Event()

    def look() -> Snapshot:
        go.wait(10)
        return Snapshot({}, [])

    lookout = Lookout(look, EVERY)
    leaving, staying = asyncio.create_task(lookout.next()), asyncio.create_task(lookout.next())
    await asyncio.sleep(0)
    leaving.cancel()
    go.set()
    assert isinstance(await staying, Snapshot)
    assert leaving.cancelled()


async def test_a_look_that_fails_or_takes_long_is_told_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Exception | Snapshot] = [ValueError("broken"), Snapshot({}, [])]
    slow = threading.Event()

    def look() -> Snapshot:
        if not answers:
            slow.wait(10)
            return Snapshot({}, [])
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lookout = Lookout(look, EVERY)
    with pytest.raises(ValueError, match="broken"):
        await lookout.next()
    assert isinstance(await lookout.next(), Snapshot)
    monkeypatch.setattr(lookout_module, "PATIENCE", 0.05)
    with pytest.raises(Overloaded, match="does not tell"):
        await lookout.next()
    slow.set()


def test_there_is_room_for_so_many() -> None:
    lookout = Lookout(lambda: Snapshot({}, []))
    places = [lookout.place() for _ in range(MOST_LOOKERS)]
    for place in places:
        place.__enter__()
    with pytest.raises(Overloaded, match="open already"), lookout.place():
        pass
    places[0].__exit__(None, None, None)
    with lookout.place():
        pass
