// sync_go.go: what locks, channels and select cost with Go. See sync.h. Called as bench_sync_go-1 it
// runs on one processor, else on as many as there are.
//
// A semaphore is a buffered channel of empty structs, as is usual in Go.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	room    = 128
	lockers = 10
	takers  = 100
	units   = 4
	skipped = 77
)

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func sumTo(count int64) int64 { return count * (count - 1) / 2 }

// all runs the functions as goroutines and waits for them.
func all(functions ...func()) {
	var group sync.WaitGroup
	for _, function := range functions {
		group.Add(1)
		go func(function func()) {
			defer group.Done()
			function()
		}(function)
	}
	group.Wait()
}

func produce(to chan<- int64, count int64) {
	for i := int64(0); i < count; i++ {
		to <- i
	}
}

func pingpong(ops int64) (found, expected int64) {
	there, back := make(chan int64), make(chan int64)
	count := ops / 2
	all(func() {
		for i := int64(0); i < count; i++ {
			there <- i
			found += <-back
		}
	}, func() {
		for i := int64(0); i < count; i++ {
			back <- <-there
		}
	})
	return found, sumTo(count)
}

func buffered(ops int64) (found, expected int64) {
	channel := make(chan int64, room)
	all(func() { produce(channel, ops) }, func() {
		for i := int64(0); i < ops; i++ {
			found += <-channel
		}
	})
	return found, sumTo(ops)
}

func repeat(count int, function func()) []func() {
	functions := make([]func(), count)
	for i := range functions {
		functions[i] = function
	}
	return functions
}

func handover(ops int64) (found, expected int64) {
	var mutex sync.Mutex
	all(repeat(lockers, func() {
		for i := int64(0); i < ops/lockers; i++ {
			mutex.Lock()
			found++
			runtime.Gosched()
			mutex.Unlock()
		}
	})...)
	return found, ops
}

func free(ops int64) (found, expected int64) {
	var mutex sync.Mutex
	all(func() {
		for i := int64(0); i < ops; i++ {
			mutex.Lock()
			found++
			mutex.Unlock()
		}
	})
	return found, ops
}

func semaphore(ops int64) (found, expected int64) {
	semaphore := make(chan struct{}, units)
	counts := make([]int64, takers*8) // a line each: they may run at the same time
	functions := make([]func(), takers)
	for i := range functions {
		count := &counts[i*8]
		functions[i] = func() {
			for i := int64(0); i < ops/takers; i++ {
				semaphore <- struct{}{}
				*count++
				runtime.Gosched()
				<-semaphore
			}
		}
	}
	all(functions...)
	for _, count := range counts {
		found += count
	}
	return found, ops
}

func selectTwo(ops int64) (found, expected int64) {
	one, other := make(chan int64), make(chan int64)
	count := ops / 2
	all(func() {
		for i := int64(0); i < 2*count; i++ {
			select {
			case item := <-one:
				found += item
			case item := <-other:
				found += item
			}
		}
	}, func() { produce(one, count) }, func() { produce(other, count) })
	return found, 2 * sumTo(count)
}

func main() {
	modes := map[string]func(int64) (int64, int64){
		"channel-pingpong": pingpong,
		"channel-buffered": buffered,
		"mutex-handover":   handover,
		"mutex-free":       free,
		"semaphore":        semaphore,
		"select-two":       selectTwo,
	}

	if len(os.Args) != 3 {
		fail("takes two arguments, MODE and OPS; bench_sync runs it")
	}
	if strings.HasSuffix(os.Args[0], "-1") {
		runtime.GOMAXPROCS(1)
	}
	ops, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || ops < 1000 || ops%1000 != 0 {
		fail("OPS must be a multiple of 1000")
	}
	run, known := modes[os.Args[1]]
	if !known {
		fmt.Println("no such mode")
		os.Exit(skipped)
	}
	run(ops / 10)
	began := time.Now()
	found, expected := run(ops)
	spent := time.Since(began)
	if found != expected {
		fail("%s: %d instead of %d", os.Args[1], found, expected)
	}
	fmt.Printf("%.4f\n", float64(spent.Nanoseconds())/float64(ops))
}
