"""Arrays of other libraries: what they say of their memory, and new ones like them."""
