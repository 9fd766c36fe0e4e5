"""40 tools of everyday kinds, written for these tests; the same always."""

from __future__ import annotations

from typing import NamedTuple

from tests.core.grammar.corpus import (
    ANY_NUMBER,
    COLOUR,
    COUNTRY,
    CURRENCY,
    DAYS,
    LOWER,
    TIME,
    YES_OR_NO,
    Schema,
    either,
    formatted,
    keyed,
    listed,
    maybe,
    number,
    one_of,
    pattern,
    ref,
    row,
    text,
    whole,
)


class OfferedTool(NamedTuple):
    """A tool as clients send it; `parameters` is the schema of an object."""

    name: str
    description: str
    parameters: Schema


_PLACE, _WORDS = text(14), text(20)
_TOOLS: dict[str, tuple[str, Schema]] = {
    "get_weather": ("The weather at a place.", keyed({"city": _PLACE}, {"unit": one_of("celsius", "fahrenheit")})),
    "search_web": ("Search the web.", keyed({"query": _WORDS}, {"results": whole(1, 10), "fresh": YES_OR_NO})),
    "send_email": ("Send an e-mail.", keyed({"to": formatted("email"), "subject": _WORDS}, {"urgent": YES_OR_NO})),
    "add_event": ("Put an event in the calendar.", keyed({"title": _WORDS, "day": formatted("date"), "at": TIME})),
    "set_timer": ("Count down.", keyed({"seconds": whole(1, 3600)}, {"label": text(8)})),
    "set_alarm": ("Wake someone.", keyed({"at": TIME}, {"days": listed(DAYS, 1, 3)})),
    "play_music": ("Play a song.", keyed({"song": _WORDS}, {"by": maybe(_WORDS), "loud": number(0, 1)})),
    "convert_money": (
        "Convert between currencies.",
        keyed({"from": CURRENCY, "to": CURRENCY, "amount": number(0, 9999)}),
    ),
    "translate": ("Translate a text.", keyed({"text": _WORDS, "to": one_of("de", "fr", "ja", "zh", "es")})),
    "calculate": (
        "Compute.",
        keyed({"op": one_of("add", "subtract", "multiply"), "numbers": listed(ANY_NUMBER, 2, 3)}),
    ),
    "book_flight": (
        "Book a flight.",
        keyed({"from": pattern("^[A-Z]{3}$"), "to": pattern("^[A-Z]{3}$")}, {"seats": whole(1, 9)}),
    ),
    "book_table": ("Book a table.", keyed({"where": _PLACE, "people": whole(1, 12), "at": formatted("date-time")})),
    "book_hotel": ("Book a room.", keyed({"city": _PLACE, "nights": whole(1, 30)}, {"stars": one_of(1, 2, 3, 4, 5)})),
    "find_route": (
        "A way from here to there.",
        keyed({"from": _PLACE, "to": _PLACE, "by": one_of("car", "bike", "foot")}),
    ),
    "get_stock_price": ("The price of a share.", keyed({"symbol": pattern("^[A-Z]{1,5}$")})),
    "order_pizza": (
        "Order a pizza.",
        keyed({"size": one_of("S", "M", "L"), "toppings": listed(one_of("ham", "corn", "egg"))}),
    ),
    "create_user": ("Make an account.", keyed({"name": LOWER, "email": formatted("email")}, {"admin": YES_OR_NO})),
    "delete_user": ("Remove an account.", keyed({"id": formatted("uuid"), "sure": {"const": True}})),
    "list_files": (
        "What lies in a directory.",
        keyed({}, {"path": pattern("^(/[a-z]{1,8}){1,3}$"), "hidden": YES_OR_NO}),
    ),
    "read_file": (
        "Read a file.",
        keyed({"path": pattern("^(/[a-z]{1,8}){1,3}$")}, {"lines": row(whole(1, 99), whole(1, 99))}),
    ),
    "write_file": ("Write a file.", keyed({"path": pattern("^/[a-z]{1,8}$"), "content": text(40)})),
    "run_query": (
        "Query a table.",
        keyed({"table": LOWER, "where": listed(row(LOWER, one_of("=", "<", ">"), whole()), 0, 2)}),
    ),
    "open_ticket": (
        "Report a problem.",
        keyed({"title": _WORDS, "priority": one_of("low", "high")}, {"labels": listed(LOWER)}),
    ),
    "close_ticket": ("A problem is solved.", keyed({"number": whole(1, 99999), "how": one_of("fixed", "duplicate")})),
    "post_message": ("Write to a channel.", keyed({"channel": pattern("^#[a-z]{2,10}$"), "message": text(30)})),
    "set_light": ("Switch a light.", keyed({"room": one_of("kitchen", "bath"), "on": YES_OR_NO}, {"colour": COLOUR})),
    "set_heating": ("Heat a room.", keyed({"room": _PLACE, "celsius": number(5, 30, multipleOf=0.5)})),
    "lock_door": ("Lock or unlock.", keyed({"door": one_of("front", "back"), "locked": YES_OR_NO})),
    "take_photo": ("Take a picture.", keyed({}, {"zoom": number(1, 10), "flash": one_of("on", "off", "auto")})),
    "draw_shape": (
        "Draw.",
        keyed({"shape": either(keyed({"radius": whole()}), keyed({"width": whole(), "height": whole()}))}),
    ),
    "track_parcel": ("Where a parcel is.", keyed({"code": pattern("^[0-9]{10}$")}, {"country": COUNTRY})),
    "pay_bill": (
        "Pay a bill.",
        keyed({"to": _WORDS, "amount": number(0, 5000), "currency": CURRENCY}, {"on": formatted("date")}),
    ),
    "check_host": (
        "Whether a host answers.",
        keyed({"host": either(formatted("ipv4"), formatted("hostname")), "port": whole(1, 65535)}),
    ),
    "log_meal": (
        "Note what was eaten.",
        keyed({"food": _WORDS, "calories": whole(0, 3000)}, {"meal": one_of("lunch", "dinner")}),
    ),
    "get_time": ("The time now.", keyed({})),
    "think": ("Note a thought.", keyed({"thought": text(60)})),
    "plan": ("Write down steps.", keyed({"steps": listed(keyed({"do": text(20), "done": YES_OR_NO}), 1, 3)})),
    "rate": ("Give stars.", keyed({"stars": whole(1, 5)}, {"why": maybe(text(30))})),
    "remember": (
        "Keep facts.",
        keyed({"facts": {"type": "object", "additionalProperties": text(10), "maxProperties": 3}}),
    ),
    "walk_tree": (
        "Go through a tree.",
        keyed(
            {"tree": ref("node")}, **{"$defs": {"node": keyed({"id": whole(0, 9)}, {"sub": listed(ref("node"), 0, 2)})}}
        ),
    ),
}


def tools() -> list[OfferedTool]:
    """All 40."""
    return [OfferedTool(name, description, parameters) for name, (description, parameters) in _TOOLS.items()]
