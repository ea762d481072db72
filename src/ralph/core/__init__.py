"""The vocabulary of all other packages. Imports none of them."""
