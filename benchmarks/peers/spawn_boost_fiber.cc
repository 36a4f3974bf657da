/* spawn_boost_fiber.cc: what starting and ending a fiber costs with Boost.Fiber: a detached
 * boost::fibers::fiber on its pooled stack allocator, with stacks of weft's size. See spawn.h.
 */
#include "spawn.h"

#include <boost/fiber/fiber.hpp>
#include <boost/fiber/operations.hpp>
#include <boost/fiber/pooled_fixedsize_stack.hpp>

#include <memory>
#include <vector>

namespace
{

void spawn(spawn_plan *plan, boost::fibers::pooled_fixedsize_stack &stacks, long batch)
{
    const std::int64_t began = bench_now();

    plan->ended = 0;
    for (long left = plan->ops; left > 0; left -= batch) {
        for (long i = 0; i < batch; i++)
            boost::fibers::fiber(boost::fibers::launch::post, std::allocator_arg, stacks, [plan] {
                plan->ended++;
            }).detach();
        boost::this_fiber::yield();
    }
    while (plan->ended != plan->ops)
        boost::this_fiber::yield();
    plan->ns = bench_now() - began;
}

void spawn_and_join(spawn_plan *plan, boost::fibers::pooled_fixedsize_stack &stacks)
{
    std::vector<boost::fibers::fiber> fibers(SPAWN_BATCH);
    const std::int64_t began = bench_now();

    for (long left = plan->ops; left > 0; left -= SPAWN_BATCH) {
        for (boost::fibers::fiber &each : fibers)
            each = boost::fibers::fiber(boost::fibers::launch::post, std::allocator_arg, stacks,
                                        [plan] { plan->ended++; });
        for (boost::fibers::fiber &each : fibers)
            each.join();
    }
    plan->ns = bench_now() - began;
}

} // namespace

int main(int argc, char **argv)
{
    auto plan = std::make_unique<spawn_plan>();
    boost::fibers::pooled_fixedsize_stack stacks(SPAWN_STACK);
    long batch;

    spawn_plan_read(plan.get(), argc, argv);
    if (spawn_is(plan.get(), "join")) {
        spawn_and_join(plan.get(), stacks);
        spawn_and_join(plan.get(), stacks);
        return spawn_plan_print(plan.get());
    }
    if (spawn_is(plan.get(), "warm-single"))
        batch = 1;
    else if (spawn_is(plan.get(), "warm-batch"))
        batch = SPAWN_BATCH;
    else if (spawn_is(plan.get(), "cold"))
        batch = plan->ops;
    else
        spawn_skip("it has nothing to make stacks ready with");
    if (batch < plan->ops)
        spawn(plan.get(), stacks, batch);
    spawn(plan.get(), stacks, batch);
    return spawn_plan_print(plan.get());
}
