"""What operators ask, and how ids are forgotten, as scripts (see txn_script)."""

from __future__ import annotations

import pytest
from txn_script import run

from tidelog.txn.config import TxnConfig
from tidelog.txn.state import TransactionState

DAY = 24 * 60 * 60 * 1000
HOUR = 60 * 60 * 1000

THREE = """
    init a tid=a     => log: a Empty 0/0; a: 0/0
    pass 1000        => nothing
    init b tid=b     => log: b Empty 1/0; b: 1/0
    add b t-0 tid=b  => log: b Ongoing 1/0 t-0; b: ok
    pass 1000        => nothing
    init c tid=c1    => log: c1 Empty 2/0; c: 2/0
    add c t-0 u-1 u-0 tid=c1 => log: c1 Ongoing 2/0 t-0 u-0 u-1; c: ok
    end c commit tid=c1      => log: c1 PrepareCommit 2/0 t-0 u-0 u-1; c: ok; mark commit 2/0 t-0 u-0 u-1
"""


def test_describe_tells_what_a_transaction_waits_for():
    script = run(
        THREE
        + """
        describe a       => -: Empty 0/0 since never
        describe b c1    => -: Ongoing 1/0 since 1000 t-0, PrepareCommit 2/0 since 2000 t-0 u-0 u-1
        marked t-0 u-1   => nothing
        describe c1      => -: PrepareCommit 2/0 since 2000 u-0
        marked           => log: c1 CompleteCommit 2/0
        describe c1      => -: CompleteCommit 2/0 since 2000
        describe no ''   => -: TRANSACTIONAL_ID_NOT_FOUND, INVALID_REQUEST
        """
    )
    script.do("describe b")
    (told,) = script.last.transaction_states
    assert (told.transactional_id, told.transaction_timeout_ms) == ("b", 60_000)


def test_list_filters_by_all_that_is_asked():
    run(
        THREE
        + """
        list                              => -: a 0 Empty, b 1 Ongoing, c1 2 PrepareCommit
        list states=Ongoing               => -: b 1 Ongoing
        list states=Ongoing,Empty         => -: a 0 Empty, b 1 Ongoing
        list states=ongoing               => -: unknown ongoing
        list states=Ongoing,Odd,Dead      => -: b 1 Ongoing, unknown Odd
        list states=PrepareEpochFence     => -: none
        list ids=2,0                      => -: a 0 Empty, c1 2 PrepareCommit
        list ids=2,0 states=Empty         => -: a 0 Empty
        list longer=999                   => -: a 0 Empty, b 1 Ongoing
        list longer=1000                  => -: a 0 Empty
        list pattern=[ab]                 => -: a 0 Empty, b 1 Ongoing
        list pattern=c                    => -: none
        list pattern=c.                   => -: c1 2 PrepareCommit
        list pattern=                     => -: a 0 Empty, b 1 Ongoing, c1 2 PrepareCommit
        list pattern=(                    => -: INVALID_REGULAR_EXPRESSION
        """
    )


def test_the_states_have_the_names_and_numbers_of_kafka():
    assert {state.label: int(state) for state in TransactionState} == {
        "Empty": 0,
        "Ongoing": 1,
        "PrepareCommit": 2,
        "PrepareAbort": 3,
        "CompleteCommit": 4,
        "CompleteAbort": 5,
        "Dead": 6,
        "PrepareEpochFence": 7,
    }


def test_an_id_that_nobody_uses_is_forgotten_after_a_week():
    run(
        f"""
        init p           => log: Empty 0/0; p: 0/0
        pass {7 * DAY - 1} => nothing
        pass {HOUR}      => log: no x
        describe         => -: TRANSACTIONAL_ID_NOT_FOUND
        add p t-0        => p: INVALID_PRODUCER_ID_MAPPING
        end p abort v=5  => p: INVALID_PRODUCER_ID_MAPPING
        init p again     => log: Empty 1/0; p: 1/0
        """
    )


def test_use_keeps_an_id_and_a_restart_does_not_prolong_its_life():
    run(
        f"""
        init p           => log: Empty 0/0; p: 0/0
        pass {6 * DAY}   => nothing
        add p t-0        => log: Ongoing 0/0 t-0; p: ok
        end p commit     => log: PrepareCommit 0/0 t-0; p: ok; mark commit 0/0 t-0
        marked           => log: CompleteCommit 0/0
        pass {6 * DAY}   => nothing
        restart          => nothing
        pass {DAY}       => log: no x
        """
    )


def test_an_open_or_prepared_transaction_does_not_expire():
    run(
        f"""
        init a tid=a timeout=2147483647 => log: a Empty 0/0; a: 0/0
        add a t-0 tid=a   => log: a Ongoing 0/0 t-0; a: ok
        init b tid=b      => log: b Empty 1/0; b: 1/0
        add b t-0 tid=b   => log: b Ongoing 1/0 t-0; b: ok
        end b abort tid=b => log: b PrepareAbort 1/0 t-0; b: ok; mark abort 1/0 t-0
        pass {8 * DAY}    => nothing
        """,
        max_timeout_ms=2**31 - 1,
    )


def test_many_expired_ids_are_forgotten_in_batches_that_a_log_accepts():
    # Ids of 3 kB: some 170 tombstones make half a megabyte.
    names = [f"{n:03d}" + "x" * 3000 for n in range(400)]
    script = run("".join(f"init p tid={name}\n" for name in names), num_partitions=1)
    batches = []
    carry_out = script.carry_out

    def watched(decision):
        batches.append(sum(len(record.key) for record in decision.records))
        carry_out(decision)

    script.carry_out = watched
    told = script.do(f"pass {7 * DAY + HOUR}")
    assert told.count("log: no ") == 400
    assert [size > 0 for size in batches].count(True) == 3
    assert max(batches) < 600_000
    assert script.do("list") == "-: none"


def test_a_tombstone_that_cannot_be_stored_is_tried_again():
    run(
        f"""
        init p           => log: Empty 0/0; p: 0/0
        pass {7 * DAY - 1} => nothing
        fail NOT_ENOUGH_REPLICAS => nothing
        pass 1           => nothing
        describe         => -: Empty 0/0 since never
        pass 500         => log: no x
        """
    )


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("transaction.state.log.num.partitions", 7, "num_partitions"),
        ("transaction.max.timeout.ms", 8, "max_timeout_ms"),
        ("transactional.id.expiration.ms", 9, "id_expiration_ms"),
        ("transaction.remove.expired.transaction.cleanup.interval.ms", 10, "id_cleanup_interval_ms"),
        ("transaction.version", 1, "transaction_version"),
    ],
)
def test_settings_have_the_names_of_kafka(name, value, setting):
    config = TxnConfig.from_properties({name: value, "unrelated": 1})
    assert getattr(config, setting) == value
    assert TxnConfig.from_properties({}) == TxnConfig()
