package segment

import (
	"sync"
	"testing"
)

func benchAppend(tb testing.TB, b *bench, body []byte) {
	if _, err := b.put(body[:200], body); err != nil {
		tb.Error(err)
	}
}

func BenchmarkSegmentAppend(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"4KiB", 4 << 10}, {"200KiB", 200 << 10}} {
		b.Run(size.name, func(b *testing.B) {
			s, body := newBench(b, Options{}), make([]byte, size.bytes)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				benchAppend(b, s, body)
			}
		})
	}
}

func BenchmarkSegmentAppendSync(b *testing.B) {
	b.Run("1", func(b *testing.B) {
		s, body := newBench(b, Options{}), make([]byte, 4<<10)
		for b.Loop() {
			benchAppend(b, s, body)
			if err := s.Sync(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("64", func(b *testing.B) { benchGroup(b, 64) })
}

// benchGroup appends from n goroutines; one goroutine syncs for all that wait.
func benchGroup(b *testing.B, n int) {
	s, body := newBench(b, Options{}), make([]byte, 4<<10)
	waiting := make(chan chan error, n)
	var syncer, writers sync.WaitGroup
	syncer.Go(func() {
		for first := range waiting {
			group := []chan error{first}
			for len(waiting) > 0 {
				group = append(group, <-waiting)
			}
			err := s.Sync()
			for _, c := range group {
				c <- err
			}
		}
	})
	b.ResetTimer()
	for g := range n {
		writers.Go(func() {
			done := make(chan error)
			for i := g; i < b.N; i += n {
				benchAppend(b, s, body)
				waiting <- done
				if err := <-done; err != nil {
					b.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(waiting)
	syncer.Wait()
}

func BenchmarkSegmentOpenRead(b *testing.B) {
	s, body := newBench(b, Options{}), make([]byte, 4<<10)
	ref := s.mustPut(b, body[:200], body)
	p := make([]byte, len(body))
	b.ReportAllocs()
	for b.Loop() {
		blob, err := s.Open(ref)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := blob.ReadAt(p, 0); err != nil {
			b.Fatal(err)
		}
		blob.Close()
	}
}

func BenchmarkSegmentReopen64MiB(b *testing.B) {
	s, body := newBench(b, Options{}), make([]byte, 4<<10)
	for s.end+5000 < defaultSegmentSize {
		benchAppend(b, s, body)
	}
	s.crash()
	b.SetBytes(defaultSegmentSize)
	for b.Loop() {
		s.start(b)
		s.crash()
	}
}
