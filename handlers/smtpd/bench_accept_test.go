package smtpd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/handlers/smtpd"
	"github.com/mailstead/mailstead/service/core"
)

// BenchmarkAccept takes messages of 2 KiB as a server does, which acknowledges each when its record
// is on disk. The processor time is that of all until they are filed, too.
func BenchmarkAccept(b *testing.B) {
	for _, conns := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("connections=%d", conns), func(b *testing.B) {
			h := open(b, func(c *core.Config, _ *smtpd.Server) { c.WaitForRows = false })
			take(b, h, conns, mail("bench")+strings.Repeat(strings.Repeat("x", 76)+"\r\n", 24))
		})
	}
}
