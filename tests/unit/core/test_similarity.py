from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.monitor import THRESHOLD, saying_of, says_again, similarity

SAME = [
    ("Which database should I use?", "Which database should I use?"),
    ("Which database should I use?", "which database should we use"),
    ("Which database should I use?", "What database should I use?"),
    ("Which database should be used?", "Which DB should I use?"),
    ("Should I deploy to production?", "Should I deploy to production or not?"),
    ("Should I deploy to production?", "Should we deploy to prod?"),
    ("Should I deploy to production?", "Again: should I deploy to production?"),
    ("Should I deploy to production?", "Just to be sure - should I deploy to production?"),
    ("Should I use Postgres or MySQL?", "Should I use MySQL or Postgres?"),
    ("Use A-1, B-2 or C-3?", "Use C-3, B-2 or A-1?"),
    (
        "For the staging deployment, which region should I use?",
        "Which region should I use for the staging deployment?",
    ),
    ("Don't touch the schema.", "Do not touch the schema!"),
    ("You can't drop the table.", "You cannot drop the table."),
    ("What is the retry limit: 3?", "What is the retry limit: three?"),
    ("May I spend 1,200 dollars?", "May I spend 1200 dollars?"),
    ("Who owns the billing service?", "who owns the Billing service?"),
    ("Ask the product manager.", "Please ask the product managers."),
    ("The API isn’t versioned, is it?", "The API isn't versioned, is it?"),
    (
        "The orders endpoint returns 500 with large carts; should I add paging to it?",
        "The orders endpoint returns 500 with large carts. Should I add paging to the endpoint?",
    ),
    ("???", "???"),
    ("我应该部署吗?", "我应该部署吗?"),
]
DIFFERENT = [
    ("Should I open port 8080?", "Should I open port 9090?"),
    ("Do delete the old backups.", "Do not delete the old backups."),
    ("Should I delete the backups?", "Shouldn't I delete the backups?"),
    ("Should I deploy to staging?", "Should I deploy to production?"),
    (
        "Shall I deploy the new billing service with all the feature flags and the nightly jobs switched on to staging?",
        "Shall I deploy the new billing service with all the feature flags and the nightly jobs switched on to prod?",
    ),
    ("Migrate from Postgres to MySQL?", "Migrate from MySQL to Postgres?"),
    ("Should the client call the server?", "Should the server call the client?"),
    ("Use Redis instead of Kafka for the queue?", "Use Kafka instead of Redis for the queue?"),
    ("Run the tests before the migration?", "Run the tests after the migration?"),
    ("Set the timeout to 5 minutes?", "Set the timeout to 5 hours?"),
    (
        "Set the idle timeout of the payment gateway connection pool behind the load balancer to 5 minutes?",
        "Set the idle timeout of the payment gateway connection pool behind the load balancer to 5 hours?",
    ),
    ("When should I deploy the release?", "Where should I deploy the release?"),
    ("Who approves the release?", "When approves the release?"),
    ("Enable the cache for the search endpoint?", "Disable the cache for the search endpoint?"),
    ("Which database should I use?", "Which database should I use for the billing service?"),
    ("Which database should I use?", "Which queue should I use?"),
    ("May I edit src/app.py?", "May I edit src/api.py?"),
    ("Is the flag user_id_v2 right?", "Is the flag user_id_v3 right?"),
    (
        "Should the service listen on http in the cluster?",
        "Should the service listen on https in the cluster?",
    ),
    ("Delete all the rows of the table?", "Delete only the rows of the table?"),
    ("Did you run the migration?", "Should I run the migration?"),
    ("Should I run the tests?", "Should I run the tests again?"),
    (
        "Please ask the team of Anna about the retention of the customer data and of the logs in the warehouse",
        "Please ask the team of Bert about the retention of the customer data and of the logs in the warehouse",
    ),
    ("Use 3 replicas?", "Use 5 replicas?"),
    ("Is -1 right as the limit?", "Is 1 right as the limit?"),
    ("Raise it by 5%?", "Raise it by 5?"),
    ("Yes.", "No."),
    ("Deploy A and not B?", "Deploy B and not A?"),
    ("Could you?", "Should I?"),
    ("???", "!!!"),
    ("", "Which database should I use?"),
    ("我应该部署吗?", "我应该删除吗?"),
    ("Should I write it in C++?", "Should I write it in C#?"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_says_again_what_is_the_same(a: str, b: str) -> None:
    assert says_again(a, b)
    assert says_again(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_says_again_in_doubt_differs(a: str, b: str) -> None:
    assert not says_again(a, b)
    assert not says_again(b, a)


def test_threshold_is_met_at_four_words_of_five() -> None:
    assert THRESHOLD == 0.8
    assert says_again("large orange boat floats", "large orange boat floats well")
    assert not says_again("orange boat floats", "orange boat floats well")


_WORDS = st.sampled_from(
    "which database port 8080 9090 not deploy production staging region cache boat floats well a the".split()  # noqa: SIM905
)
_TEXTS = st.lists(_WORDS, max_size=8).map(" ".join)


@settings(deadline=None)
@given(_TEXTS, _TEXTS)
def test_similarity_has_no_direction_and_knows_itself(a: str, b: str) -> None:
    one, other = saying_of(a), saying_of(b)
    assert similarity(one, other) == similarity(other, one)
    assert 0.0 <= similarity(one, other) <= 1.0
    assert similarity(one, one) == 1.0


@settings(deadline=None)
@given(st.text(max_size=80))
def test_says_again_takes_any_text(text: str) -> None:
    assert says_again(text, text)


def test_says_again_very_long_texts_only_if_equal() -> None:
    long = "very long " * 1000
    assert says_again(long, long.upper())
    assert not says_again(long, long + ".")
