// The thread behind a queue or an immediate list: runs what is submitted, in order.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "command_list.hpp"
#include "fork.hpp"
#include "signal.hpp"

namespace softdriver {

class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Queues the steps of some lists and returns what completes when all of them have run.
  std::shared_ptr<Signal> submit(std::vector<std::shared_ptr<const Steps>> lists);

  // Waits until all that was submitted so far has run. Throws the first failure since the last call.
  ze_result_t synchronize(uint64_t timeout);

  // Runs what is still queued and ends the thread. A wait for an event that is not signalled is given up.
  void finish() noexcept;

  // Waits until there is nothing to run but waits for events.
  void settle();

  const Home home;

 private:
  struct Job {
    std::vector<std::shared_ptr<const Steps>> lists;
    std::shared_ptr<Signal> done;
  };

  void loop() noexcept;
  Outcome run(const Job& job) noexcept;
  Outcome wait_for(Event& event) noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first one is running
  std::shared_ptr<Signal> last_;
  Outcome failure_;
  Event* awaited_ = nullptr;  // what the running job waits for
  std::atomic<bool> finishing_{false};
  std::thread thread_;  // the last member: it uses all the others
};

}  // namespace softdriver
