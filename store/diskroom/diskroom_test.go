package diskroom

import "testing"

func TestReserveOfASmallDisk(t *testing.T) {
	for _, c := range []struct {
		free, total int64
		want        Level
	}{
		{3 << 20, 48 << 20, Enough}, {2 << 20, 48 << 20, Short}, {1 << 20, 48 << 20, Short},
		{63 << 20, 1 << 40, Short}, {65 << 20, 1 << 40, Enough}, {31 << 20, 1 << 40, Short},
	} {
		if got := levelOf(c.free, c.total); got != c.want {
			t.Errorf("%d of %d: %d, want %d", c.free, c.total, got, c.want)
		}
	}
}
