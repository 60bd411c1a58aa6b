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

// Call work(p) for every part p, on up to `threads` threads; on this one alone if there is no team.
template <class F>
inline void share(I parts, I threads, Team team, const F& work) {
  Shared<F> shared{work, parts};
  threads = std::min(threads, parts);
  if (team && threads > 1)
    team(&Shared<F>::run, &shared, unsigned(threads), 0);
  else
    Shared<F>::run(&shared);
}

// The parts of a kernel's work, which as many threads share: the last argument of kernels
template <class Part>
struct Work {
  const Part* parts;
  I count;
  Team team;

  template <class F>
  void operator()(const F& run) const {
    share(count, count, team, [&](I p) { run(parts[p]); });
  }
};
