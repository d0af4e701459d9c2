"""Two proxies on one pool whose pods are ready all the time (FARMAGENT_READY=healthy): only agents know who is free."""


async def test_a_pod_that_one_proxy_gives_back_is_the_other_ones_at_once(new_farm, fakes):
    async def one_at_a_time(pod, shake):
        if pod.running > 1:
            await fakes.busy("busy")(pod, shake)
            return
        pod.free.clear()
        try:
            await fakes.serve_echo(pod, shake)
        finally:
            pod.free.set()

    pods = [fakes.Pod(f"p{number}", one_at_a_time) for number in range(48)]
    ours, theirs = new_farm(), new_farm()
    await theirs.add(*pods)
    callers = [await theirs.upgrade() for _ in pods]
    for caller in callers:
        assert (await caller.head())[0] == 101
    await ours.add(*pods)
    held = await ours.upgrade()
    await ours.until(lambda: ours.counts().pods["unready"] == len(pods), 20)
    for number in (47, 20, 0):
        callers[number].close()
        assert (await held.head())[0] == 101  # within the 5 s of ``head``
        held.close()
        held = await ours.upgrade()
