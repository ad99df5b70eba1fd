package webhooks

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	maxHeaderName  = 64      // bytes
	maxHeaderValue = 1 << 10 // bytes
	fullMask       = 16      // shorter values are masked as a whole
	maskedTail     = 4       // characters that a mask shows
	minHidden      = 8       // shorter values are not removed from responses
)

// refusedHeaders are the names of header fields that an endpoint cannot set, in lower case: those
// that belong to the connection or the request. A name that ends in "-" stands for all that begin
// so.
var refusedHeaders = []string{
	"host", "content-", "connection", "keep-alive", "proxy-", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect",
	"forwarded", "x-forwarded-", "x-service-", "webhook-",
}

// CheckHeaderName returns an error if an endpoint cannot have a header field with this name. The
// error does not repeat the name.
func CheckHeaderName(name string) error {
	if name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, func(r rune) bool { return !isTokenRune(r) }) {
		return fmt.Errorf("must be a name of 1 to %d letters, digits, hyphens and underscores", maxHeaderName)
	}
	lower := strings.ReplaceAll(strings.ToLower(name), "_", "-") // many receivers take both for the same
	for _, refused := range refusedHeaders {
		if lower == refused || strings.HasSuffix(refused, "-") && strings.HasPrefix(lower, refused) {
			return errors.New("cannot be set: Mailstead writes it, or it belongs to the connection")
		}
	}
	return nil
}

// isTokenRune reports whether r can be part of the name of a header field (RFC 9110 section 5.6.2).
func isTokenRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// CheckHeaderValue returns an error if a header field cannot have this value: it must be printable
// ASCII, with blanks only inside, of at most 1 KiB. The error does not repeat the value.
func CheckHeaderValue(value string) error {
	switch {
	case value == "":
		return errors.New("must not be empty")
	case len(value) > maxHeaderValue:
		return fmt.Errorf("can have at most %d characters", maxHeaderValue)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return errors.New("must be printable ASCII")
	case strings.TrimSpace(value) != value:
		return errors.New("must not begin or end with a blank")
	}
	return nil
}

// MaskHeader returns what is shown instead of the value of a header field: an ellipsis, and of
// longer values the last four characters.
func MaskHeader(value string) string {
	if len(value) < fullMask {
		return "…"
	}
	return "…" + value[len(value)-maskedTail:]
}

// hideHeaders replaces the values of header fields in a response by their masks, since a receiver
// may repeat what it was sent. If cut is true, the response was longer, and may end within a value.
func hideHeaders(text string, headers map[string]string, cut bool) string {
	values := slices.SortedFunc(maps.Values(headers), func(a, b string) int { return len(b) - len(a) }) // a value may contain another
	for _, value := range values {
		if len(value) < minHidden {
			continue
		}
		quoted, err := json.Marshal(value)
		forms := []string{value}
		if err == nil {
			forms = append(forms, string(quoted[1:len(quoted)-1]))
		}
		for _, form := range forms {
			text = strings.ReplaceAll(text, form, MaskHeader(value))
			for n := len(form) - 1; cut && n > 0; n-- {
				if strings.HasSuffix(text, form[:n]) {
					text = text[:len(text)-n]
					break
				}
			}
		}
	}
	return text
}
