# More and more memory, until somebody says no.
held = []
while True:
    held.append(bytearray(8 << 20))
