/* yield_boost_fiber.cc: what a yield costs with Boost.Fiber: boost::this_fiber::yield().
 *
 * Its default scheduler (round robin), its fixed-size stack allocator with stacks of weft's size.
 * The pooled allocator gives the same figures: the stacks are all made before the clock starts.
 */
#include "yield.h"

#include <boost/fiber/fiber.hpp>
#include <boost/fiber/fixedsize_stack.hpp>
#include <boost/fiber/operations.hpp>

#include <memory>
#include <new>
#include <utility>

int main(int argc, char **argv)
{
    /* on the heap, as the other programs' */
    auto plan = std::make_unique<yield_plan>();
    boost::fibers::fixedsize_stack stacks(YIELD_STACK);
    boost::fibers::fiber last;

    yield_plan_read(plan.get(), argc, argv);
    try {
        for (long i = 0; i < plan->fibers; i++) {
            boost::fibers::fiber fiber(
                boost::fibers::launch::post, std::allocator_arg, stacks,
                [](yield_plan *shared) { YIELD_FIBER(shared, boost::this_fiber::yield()); },
                plan.get());

            if (i + 1 < plan->fibers)
                fiber.detach();
            else
                last = std::move(fiber);
        }
    } catch (const std::bad_alloc &) {
        yield_skip("no memory for the stacks");
    }
    last.join();
    return yield_plan_print(plan.get());
}
