# Six seconds of computing; prints the share of one CPU that was had, in percent.
import time

began, used = time.time(), time.process_time()
while time.time() - began < 6:
    pass
print(round(100 * (time.process_time() - used) / (time.time() - began)))
