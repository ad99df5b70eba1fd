package jobs

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/mailstead/mailstead/store"
)

// BenchmarkJobs measures jobs from Add, in transactions of 64, over claim and work to the commit of
// their end.
func BenchmarkJobs(b *testing.B) {
	for _, lanes := range []int{1, 64} {
		b.Run(fmt.Sprintf("lanes=%d", lanes), func(b *testing.B) { benchmark(b, lanes, 0) })
	}
	b.Run("lanes=1/backlog=100000", func(b *testing.B) { benchmark(b, 1, 100_000) })
}

// benchmark does b.N jobs in so many lanes, beside a lane with a backlog that cannot move.
func benchmark(b *testing.B, lanes, backlog int) {
	q := newQueue(openStore(b, b.TempDir(), nil))
	var left sync.WaitGroup
	q.Handle(Kind{Name: "k", Work: func(context.Context, *store.Job) (Writes, error) {
		return func(tx *store.Tx, _ *store.Job) error {
			tx.After(left.Done)
			return nil
		}, nil
	}})
	q.Handle(Kind{Name: "stuck", Work: func(ctx context.Context, _ *store.Job) (Writes, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	q.Grace = 0
	addMany(b, q, backlog, func(int) New { return New{Kind: "stuck", Lane: "stuck"} })
	start(b, q)
	left.Add(b.N)
	b.ResetTimer()
	for from := 0; from < b.N; from += 64 {
		update(b, q, func(tx *store.Tx) error {
			for i := from; i < min(from+64, b.N); i++ {
				if _, err := q.Add(tx, New{Kind: "k", Lane: fmt.Sprint(i % lanes)}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	left.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	b.StopTimer()
}
