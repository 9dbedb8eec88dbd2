"""Files with a few bytes that are not what they were."""

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, valid: bytes, tokens: list[bytes]) -> bytes:
    """The content after one to four places were replaced, by noise or by one of the tokens."""
    content = valid
    new = st.binary(max_size=6) | st.sampled_from(tokens)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(valid) - 1))
        content = content[:at] + draw(new) + content[at + draw(st.integers(0, 12)) :]
    return content
