from prefold.core.policies.guard import Guard


def serve(guard: Guard, requests: int, hit: int, standard: int) -> None:
    for _ in range(requests):
        guard.judge(tokens=100, hit=hit, standard=standard, average=100)


def test_it_follows_when_it_is_asked_to_and_there_is_nothing_to_hold_against_it() -> None:
    guard = Guard(10**6)
    assert not guard.follows
    assert guard.may_follow(average=100)
    assert guard.follows
    assert not guard.may_follow(average=100), "it does already"


def test_it_follows_as_long_as_nothing_much_is_lost() -> None:
    guard = Guard(10**6)
    guard.may_follow(average=100)
    serve(guard, 4, hit=0, standard=100)
    assert guard.follows, "the stake"
    serve(guard, 1, hit=0, standard=100)
    assert not guard.follows
    assert not guard.may_follow(average=100)


def test_a_loss_that_became_small_is_no_hindrance() -> None:
    guard = Guard(10**9)
    guard.may_follow(average=100)
    serve(guard, 5, hit=0, standard=100)
    serve(guard, 1000, hit=90, standard=90)
    assert guard.may_follow(average=100)


def test_it_tries_again_when_the_hits_have_doubled() -> None:
    guard = Guard(10**9)
    guard.may_follow(average=100)
    serve(guard, 100, hit=100, standard=100)
    serve(guard, 50, hit=0, standard=100)
    assert not guard.follows
    serve(guard, 59, hit=100, standard=100)
    assert not guard.may_follow(average=100)
    serve(guard, 1, hit=100, standard=100)
    assert guard.may_follow(average=100)


def test_against_the_worst_ranking_all_losses_stay_below_one_percent() -> None:
    guard = Guard(10**9)
    hits = standard = 0
    for _ in range(20_000):
        guard.may_follow(average=100)
        hit = 0 if guard.follows else 80
        guard.judge(tokens=100, hit=hit, standard=80, average=100)
        hits, standard = hits + hit, standard + 80
    assert hits < standard
    assert hits >= 0.99 * standard


def test_old_wins_are_forgotten() -> None:
    guard = Guard(100)
    guard.may_follow(average=100)
    serve(guard, 1000, hit=50, standard=0)
    serve(guard, 1000, hit=50, standard=50)
    serve(guard, 20, hit=0, standard=50)
    assert not guard.follows
