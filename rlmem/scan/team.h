// Work that torch's own threads share

#pragma once

#include <atomic>

#include "common.h"

// What GNU's OpenMP runs a parallel region by: (function, its argument, threads, flags)
typedef void (*Team)(void (*)(void*), void*, unsigned, unsigned);

template <class F>
struct Shared {
  const F& work;
  I parts;
  std::atomic<I> taken{0};

  static void run(void* self) {
    Shared& shared = *static_cast<Shared*>(self);
    for (I p; (p = shared.taken++) < shared.parts;) shared.work(p);
  }
};

// Call work(p) for every part p, on `threads` threads; on this one alone if there is no team, or one part. All of torch's
// threads take part, also if there are fewer parts: GNU's OpenMP would end those that a smaller team leaves out, and start
// them anew for torch's next operator.
template <class F>
inline void share(I parts, I threads, Team team, const F& work) {
  Shared<F> shared{work, parts};
  if (team && parts > 1 && threads > 1)
    team(&Shared<F>::run, &shared, unsigned(threads), 0);
  else
    Shared<F>::run(&shared);
}

// The parts of a kernel's work: the last argument of those kernels that `call_in_parallel` of native.py calls
template <class Part>
struct Work {
  const Part* parts;
  I count, threads;
  Team team;

  template <class F>
  void operator()(const F& run) const {
    share(count, threads, team, [&](I p) { run(parts[p]); });
  }
};
