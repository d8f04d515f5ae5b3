"""Price all articles.  One of them crashes its process."""

from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool

from ptss_mp import Executor as ProcessPoolExecutor
from shop import price

if __name__ == "__main__":
    with ProcessPoolExecutor(max_workers=2) as pool:
        futures = {pool.submit(price, item): item for item in range(2_000)}
        for f in as_completed(futures):
            try:
                print(futures[f], f.result())
            except BrokenProcessPool as e:
                print(futures[f], "crashed:", e)
