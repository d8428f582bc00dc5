"""numpy: linear algebra with threads, random numbers, memory maps."""
import os
import threading

import numpy as np

checks = 0


def check(holds, what):
    global checks
    assert holds, what
    checks += 1


rng = np.random.default_rng(7)
matrix = rng.normal(size=(300, 300))
check(np.allclose(matrix @ np.linalg.inv(matrix), np.eye(300), atol=1e-6), "an inverse")
values, vectors = np.linalg.eigh(matrix + matrix.T)
check(np.allclose((matrix + matrix.T) @ vectors, vectors * values, atol=1e-6), "eigenvalues")
u, s, v = np.linalg.svd(matrix[:100])
check(np.allclose(u * s @ v[:100], matrix[:100]), "singular values")
solution = np.linalg.solve(matrix, np.ones(300))
check(np.allclose(matrix @ solution, np.ones(300)), "a solution")
signal = np.fft.irfft(np.fft.rfft(rng.normal(size=4096)))
check(signal.shape == (4096,), "a Fourier transform there and back")
results = [None] * 4
threads = [threading.Thread(target=lambda n=n: results.__setitem__(n, float(np.linalg.norm(matrix @ matrix)))) for n in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
check(len(set(results)) == 1 and results[0] > 0, "the same result in four threads")
mapped = np.memmap("/work/map.bin", dtype="float64", mode="w+", shape=(1000,))
mapped[:] = np.arange(1000)
mapped.flush()
check(np.fromfile("/work/map.bin").sum() == 499500, "a memory map")
np.savez_compressed("/out/arrays.npz", matrix=matrix)
check(np.allclose(np.load("/out/arrays.npz")["matrix"], matrix), "arrays in a file")
check(int(os.environ["OPENBLAS_NUM_THREADS"]) >= 1, "threads follow the limit")
print(f"work ok: {checks} checks")
