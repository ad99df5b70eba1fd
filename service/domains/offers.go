package domains

import (
	"fmt"
	"math"
	"time"
)

const (
	quoteTimeout = 20 * time.Second    // time limit for one call to a registrar
	lapsedAfter  = 90 * 24 * time.Hour // so long after its expiry, a domain can be bought again
	currency     = "USD"
)

// What has told whether a name is available.
const (
	viaRegistrar = "registrar"
	viaRDAP      = "rdap"
	viaDNS       = "dns"
)

// cents converts dollars to cents and rounds down, so that a price limit is never exceeded.
func cents(dollars float64) int64 { return int64(math.Floor(dollars*100 + 1e-6)) }

// termText returns a term of years as a text, such as "2 years".
func termText(years int) string {
	if years == 1 {
		return "one year"
	}
	return fmt.Sprintf("%d years", years)
}

// dollars converts cents to dollars. It returns nil for 0, which means that the price is not known.
func dollars(cents int64) *float64 {
	if cents == 0 {
		return nil
	}
	d := float64(cents) / 100
	return &d
}

func usd(cents int64) string { return fmt.Sprintf("%.2f %s", float64(cents)/100, currency) }
