

async def test_x(ann, store):
    j = await ann.submit(parameters={"a": 1})
    print(j)
    print(await ann.all("/jobs"))


async def test_y(ann, store):
    assert await ann.all("/jobs") == []
