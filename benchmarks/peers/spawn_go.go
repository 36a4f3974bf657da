// spawn_go.go: what starting and ending a goroutine costs. See spawn.h. Called as bench_spawn_go-1 it
// runs on one processor, else on as many as there are.
//
// A goroutine can't be given way to and be known to have ended, so its end is counted by a WaitGroup,
// as is usual; the batches wait for it. Its stacks grow from 2 KiB.
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
	batchSize = 1000
	skipped   = 77
)

func spawn(ops, batch int64) {
	var group sync.WaitGroup

	for left := ops; left > 0; left -= batch {
		group.Add(int(batch))
		for i := int64(0); i < batch; i++ {
			go group.Done()
		}
		group.Wait()
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "takes two arguments, MODE and OPS; bench_spawn runs it")
		os.Exit(1)
	}
	if strings.HasSuffix(os.Args[0], "-1") {
		runtime.GOMAXPROCS(1)
	}
	ops, err := strconv.ParseInt(os.Args[2], 10, 64)
	if err != nil || ops <= 0 {
		fmt.Fprintln(os.Stderr, "OPS must be positive")
		os.Exit(1)
	}
	batch := ops
	switch os.Args[1] {
	case "warm-single":
		batch = 1
	case "warm-batch", "join":
		batch = batchSize
	case "cold":
	default:
		fmt.Println("it has nothing to make stacks ready with")
		os.Exit(skipped)
	}
	if batch < ops {
		spawn(ops, batch)
	}
	began := time.Now()
	spawn(ops, batch)
	fmt.Printf("%.4f\n", float64(time.Since(began).Nanoseconds())/float64(ops))
}
