"""A wallet that counts in cents."""


class Wallet:
    def __init__(self, cents=0):
        self.cents = cents

    def add(self, cents):
        self.cents = self.cents - cents

    def spend(self, cents):
        self.cents = self.cents - cents
