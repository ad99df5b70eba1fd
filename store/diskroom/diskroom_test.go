package diskroom

import "testing"

func TestReserveOfASmallDisk(t *testing.T) {
	for _, c := range []struct {
		free, total int64
		want        bool
	}{
		{3 << 20, 48 << 20, false}, {2 << 20, 48 << 20, true}, {1 << 20, 48 << 20, true},
		{63 << 20, 1 << 40, true}, {65 << 20, 1 << 40, false}, {31 << 20, 1 << 40, true},
	} {
		if got := isShort(c.free, c.total); got != c.want {
			t.Errorf("%d of %d: %t, want %t", c.free, c.total, got, c.want)
		}
	}
}
