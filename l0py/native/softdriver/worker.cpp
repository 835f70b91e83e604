#include "worker.hpp"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "device.hpp"
#include "event.hpp"

#ifndef _WIN32
#include <signal.h>
#endif

namespace softdriver {
namespace {

// Signals are for the application's own threads; only a thread's own faults are not.
class SignalsBlocked {
 public:
#ifndef _WIN32
  SignalsBlocked() {
    sigset_t blocked;
    sigfillset(&blocked);
    for (int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&blocked, own);
    }
    pthread_sigmask(SIG_SETMASK, &blocked, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
};

// All workers, so that a process that exits in the middle of an execution lets it end first: the libraries that
// execute graphs are taken down next.
class Workers {
 public:
  explicit Workers(const Workers* before) : before_(before) {}
  bool left() const noexcept { return home_.left(); }
  void add(Worker* worker) {
    std::lock_guard lock(mutex_);
    workers_.insert(worker);
  }
  void remove(Worker* worker) {
    std::lock_guard lock(mutex_);
    workers_.erase(worker);
  }
  void settle() {
    std::lock_guard lock(mutex_);
    for (Worker* worker : workers_) {
      worker->settle();
    }
  }

 private:
  const Home home_;
  [[maybe_unused]] const Workers* const before_;  // the parent process's: kept, for its lock may be held for ever
  std::mutex mutex_;
  std::set<Worker*> workers_;
};

std::atomic<Workers*> current_workers{nullptr};

[[maybe_unused]] void settle_workers() {
  Workers* workers = current_workers.load();
  if (workers != nullptr && !workers->left()) {
    workers->settle();
  }
}

// A forked child begins with none of its own. Deliberately never destroyed: queues may be used while the process exits.
Workers& all_workers() {
  Workers* workers = current_workers.load();
  while (workers == nullptr || workers->left()) {
    auto made = std::make_unique<Workers>(workers);
    if (current_workers.compare_exchange_strong(workers, made.get())) {
#ifndef _WIN32  // where the system has ended all other threads when exit handlers run
      std::atexit(settle_workers);
#endif
      return *made.release();
    }
  }
  return *workers;
}

Outcome run_command(Command& command) noexcept {
  try {
    command.run();
    return nullptr;
  } catch (const Failure& failure) {
    return failed(failure.result, failure.what());
  } catch (const std::bad_alloc&) {
    return failed(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return failed(ZE_RESULT_ERROR_UNKNOWN, error.what());
  } catch (...) {
    return failed(ZE_RESULT_ERROR_UNKNOWN, "unknown exception");
  }
}

}  // namespace

Worker::Worker() {
  [[maybe_unused]] const SignalsBlocked blocked;
  all_workers().add(this);
  try {
    thread_ = std::thread([this] { loop(); });
  } catch (const std::system_error& error) {
    all_workers().remove(this);
    throw Failure(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY, std::string("no thread for a queue: ") + error.what());
  }
}

Worker::~Worker() { finish(); }

std::shared_ptr<Signal> Worker::submit(std::vector<std::shared_ptr<const Steps>> lists) {
  home.require();
  auto done = std::make_shared<Signal>();
  {
    std::lock_guard lock(mutex_);
    if (finishing_) {
      throw Failure(ZE_RESULT_ERROR_INVALID_ARGUMENT, "the queue was destroyed meanwhile");
    }
    jobs_.push_back({std::move(lists), done});
    last_ = done;
  }
  changed_.notify_all();
  return done;
}

ze_result_t Worker::synchronize(uint64_t timeout) {
  home.require();
  std::shared_ptr<Signal> last;
  {
    std::lock_guard lock(mutex_);
    last = last_;
  }
  if (last != nullptr && !last->wait(timeout, never)) {
    return ZE_RESULT_NOT_READY;
  }
  std::lock_guard lock(mutex_);
  return answer(std::exchange(failure_, nullptr));
}

void Worker::finish() noexcept {
  if (home.left() || !thread_.joinable()) {
    return;
  }
  {
    std::lock_guard lock(mutex_);
    finishing_ = true;
    if (awaited_ != nullptr) {
      awaited_->signal.wake();
    }
  }
  changed_.notify_all();
  thread_.join();
  all_workers().remove(this);
}

void Worker::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() || (awaited_ != nullptr && !awaited_->signal.completed()); });
}

void Worker::loop() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !jobs_.empty() || finishing_; });
    if (jobs_.empty()) {
      return;
    }
    const Job& running = jobs_.front();
    lock.unlock();
    const Outcome outcome = run(running);
    lock.lock();
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    if (outcome != nullptr && failure_ == nullptr) {
      failure_ = outcome;
    }
    lock.unlock();
    // What the job kept alive goes before anybody learns that it is over.
    job.lists.clear();
    job.done->complete(outcome);
    changed_.notify_all();
    lock.lock();
  }
}

// After a failure nothing more of the submission runs, but its events still complete, with the failure: nobody is
// left waiting, and nobody takes it for a success.
Outcome Worker::run(const Job& job) noexcept {
  Outcome outcome;
  for (const auto& steps : job.lists) {
    for (const Step& step : *steps) {
      for (auto wait = step.waits.begin(); wait != step.waits.end() && outcome == nullptr; ++wait) {
        outcome = wait_for(**wait);
      }
      const uint64_t begin = device_ticks();
      if (outcome == nullptr && step.command != nullptr) {
        outcome = run_command(*step.command);
      }
      if (step.signal != nullptr) {
        step.signal->ran(begin, device_ticks());
        step.signal->signal.complete(outcome);
      }
    }
  }
  return outcome;
}

Outcome Worker::wait_for(Event& event) noexcept {
  if (auto outcome = event.signal.wait(0, never)) {
    return *outcome;
  }
  {
    std::lock_guard lock(mutex_);
    awaited_ = &event;
  }
  changed_.notify_all();
  const auto outcome = event.signal.wait(forever, finishing_);
  std::lock_guard lock(mutex_);
  awaited_ = nullptr;
  return outcome ? *outcome : failed(ZE_RESULT_ERROR_UNKNOWN, "the queue was destroyed while it waited for an event");
}

}  // namespace softdriver
