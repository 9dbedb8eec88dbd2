"""Files in which a few bytes have been changed."""

from hypothesis import strategies as st


@st.composite
def mutated(draw: st.DrawFn, valid: bytes, tokens: list[bytes]) -> bytes:
    """The content with one to four places replaced by noise or by one of the tokens."""
    content = valid
    new = st.binary(max_size=6) | st.sampled_from(tokens)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(valid) - 1))
        content = content[:at] + draw(new) + content[at + draw(st.integers(0, 12)) :]
    return content
