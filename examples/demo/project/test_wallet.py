import unittest

from wallet import Wallet


class WalletTest(unittest.TestCase):
    def test_adding_makes_it_fuller(self):
        wallet = Wallet(100)
        wallet.add(50)
        self.assertEqual(wallet.cents, 150)

    def test_spending_makes_it_emptier(self):
        wallet = Wallet(100)
        wallet.spend(30)
        self.assertEqual(wallet.cents, 70)

    def test_nobody_spends_more_than_they_have(self):
        wallet = Wallet(10)
        with self.assertRaises(ValueError):
            wallet.spend(11)
        self.assertEqual(wallet.cents, 10)


if __name__ == "__main__":
    unittest.main()
