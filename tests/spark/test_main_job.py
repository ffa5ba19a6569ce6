"""The main job under both drivers: headers live in state, and state lives in the durable location."""

import shutil

from orders import expected_totals, seeded_orders
from queries import OrderQuery
from statestore import Serdes


def test_headers_survive_state_and_a_lost_disk(order_query: OrderQuery) -> None:
    orders = seeded_orders(120)
    order_query.add(orders[:40])
    order_query.add(orders[40:80])
    order_query.run()
    assert order_query.totals() == expected_totals(orders[:80])

    shutil.rmtree(order_query.home / "local")
    order_query.add(orders[80:])
    order_query.run()
    assert order_query.totals() == expected_totals(orders)


def test_each_record_comes_out_once_in_order_with_its_headers(order_query: OrderQuery) -> None:
    orders = seeded_orders(100)
    order_query.add(orders[:70])
    order_query.add(orders[70:])
    order_query.run()
    running: dict[str, int] = {}
    expected = []
    for order in orders:
        running[order.customer] = running.get(order.customer, 0) + order.amount
        expected.append((order.customer, running[order.customer], order.timestamp_ms, order.headers))
    found = [
        (
            row.key.decode(),
            Serdes.int64().deserialize(bytes(row.value)),
            round(row.timestamp.timestamp() * 1000),
            [(header.key, header.value) for header in row.headers],
        )
        for row in order_query.outputs
    ]
    assert {row.topic for row in order_query.outputs} == {"totals"}
    for customer in running:
        assert [row for row in found if row[0] == customer] == [row for row in expected if row[0] == customer]
    assert len(found) == len(expected)
