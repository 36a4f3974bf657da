/* sync_boost_fiber.cc: what locks and channels cost with Boost.Fiber, on its pooled stack allocator.
 * See sync.h.
 *
 * It has no semaphore; the one here is made of its mutex and condition variable, as usual. It has
 * nothing to wait for one of several channels with. Its buffered channel holds one item less than its
 * size, which must be a power of two: here it has room for 127.
 */
#include "sync.h"

#include <boost/fiber/buffered_channel.hpp>
#include <boost/fiber/condition_variable.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/mutex.hpp>
#include <boost/fiber/operations.hpp>
#include <boost/fiber/pooled_fixedsize_stack.hpp>
#include <boost/fiber/unbuffered_channel.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace
{

using boost::fibers::fiber;

boost::fibers::pooled_fixedsize_stack stacks(64 * 1024); /* as weft's */

std::int64_t sum_to(long count)
{
    return static_cast<std::int64_t>(count) * (count - 1) / 2;
}

template <typename Function> fiber start(Function &&function)
{
    return fiber(boost::fibers::launch::post, std::allocator_arg, stacks,
                 std::forward<Function>(function));
}

void pingpong(long ops)
{
    boost::fibers::unbuffered_channel<long> there, back;
    const long count = ops / 2;
    std::int64_t sum = 0;

    fiber ping = start([&] {
        for (long i = 0; i < count; i++) {
            there.push(i);
            sum += back.value_pop();
        }
    });
    fiber pong = start([&] {
        for (long i = 0; i < count; i++)
            back.push(there.value_pop());
    });
    ping.join();
    pong.join();
    sync_check("channel-pingpong", sum, sum_to(count));
}

void buffered(long ops)
{
    boost::fibers::buffered_channel<long> channel(SYNC_ROOM);
    std::int64_t sum = 0;

    fiber producer = start([&] {
        for (long i = 0; i < ops; i++)
            channel.push(i);
    });
    fiber consumer = start([&] {
        for (long i = 0; i < ops; i++)
            sum += channel.value_pop();
    });
    producer.join();
    consumer.join();
    sync_check("channel-buffered", sum, sum_to(ops));
}

template <typename Turn> void take_turns(const char *mode, long ops, int count, Turn turn)
{
    std::vector<fiber> fibers;
    std::int64_t sum = 0;

    for (int i = 0; i < count; i++)
        fibers.push_back(start([&] {
            for (long k = 0; k < ops / count; k++)
                turn(sum);
        }));
    for (fiber &each : fibers)
        each.join();
    sync_check(mode, sum, ops);
}

void handover(long ops)
{
    boost::fibers::mutex mutex;

    take_turns("mutex-handover", ops, SYNC_LOCKERS, [&](std::int64_t &sum) {
        mutex.lock();
        sum++;
        boost::this_fiber::yield();
        mutex.unlock();
    });
}

void free_mutex(long ops)
{
    boost::fibers::mutex mutex;

    take_turns("mutex-free", ops, 1, [&](std::int64_t &sum) {
        mutex.lock();
        sum++;
        mutex.unlock();
    });
}

void semaphore(long ops)
{
    boost::fibers::mutex mutex;
    boost::fibers::condition_variable more;
    int units = SYNC_UNITS;

    take_turns("semaphore", ops, SYNC_TAKERS, [&](std::int64_t &sum) {
        {
            std::unique_lock<boost::fibers::mutex> lock(mutex);

            more.wait(lock, [&] { return units > 0; });
            units--;
        }
        sum++;
        boost::this_fiber::yield();
        {
            std::unique_lock<boost::fibers::mutex> lock(mutex);

            units++;
        }
        more.notify_one();
    });
}

} // namespace

int main(int argc, char **argv)
{
    auto plan = std::make_unique<sync_plan>();
    void (*run)(long ops);
    std::int64_t began;

    sync_plan_read(plan.get(), argc, argv);
    if (sync_is(plan.get(), "channel-pingpong"))
        run = pingpong;
    else if (sync_is(plan.get(), "channel-buffered"))
        run = buffered;
    else if (sync_is(plan.get(), "mutex-handover"))
        run = handover;
    else if (sync_is(plan.get(), "mutex-free"))
        run = free_mutex;
    else if (sync_is(plan.get(), "semaphore"))
        run = semaphore;
    else
        sync_skip("it has nothing to wait for one of several channels with");
    run(plan->ops / 10);
    began = bench_now();
    run(plan->ops);
    return sync_print(bench_now() - began, plan->ops);
}
