"""`./dev fuzz`: throws mutated input at everything that reads what strangers wrote.

`targets.py` names the entry points, with seeds and the exceptions that each may raise. `mutate.py` changes bytes,
`loop.py` keeps what reaches new lines of our code and saves whatever breaks a promise.
"""
