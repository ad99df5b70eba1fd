package tlsrpt

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/mail/reportfile"
)

// The JSON objects of a report (RFC 8460 section 4.4), for writing and reading.
type (
	wireReport struct {
		Org      text             `json:"organization-name"`
		Range    wireRange        `json:"date-range"`
		Contact  text             `json:"contact-info"`
		ID       text             `json:"report-id"`
		Policies list[wirePolicy] `json:"policies"`
	}
	wireRange struct {
		Start text `json:"start-datetime"`
		End   text `json:"end-datetime"`
	}
	wirePolicy struct {
		Policy   wirePolicyText    `json:"policy"`
		Summary  wireSummary       `json:"summary"`
		Failures list[wireFailure] `json:"failure-details,omitempty"`
	}
	wirePolicyText struct {
		Type    text       `json:"policy-type"`
		Strings list[text] `json:"policy-string,omitempty"`
		Domain  text       `json:"policy-domain"`
		MXHosts list[text] `json:"mx-host,omitempty"`
	}
	wireSummary struct {
		Successful number `json:"total-successful-session-count"`
		Failed     number `json:"total-failure-session-count"`
	}
	wireFailure struct {
		Result      text   `json:"result-type"`
		SendingIP   text   `json:"sending-mta-ip,omitempty"`
		MXHost      text   `json:"receiving-mx-hostname,omitempty"`
		MXHelo      text   `json:"receiving-mx-helo,omitempty"`
		ReceivingIP text   `json:"receiving-ip,omitempty"`
		Sessions    number `json:"failed-session-count"`
		Reason      text   `json:"failure-reason-code,omitempty"`
		Information text   `json:"additional-information,omitempty"`
	}
)

// A list is a JSON array. At most maxList elements are read. An element of the wrong type is read
// as a zero value.
type list[T any] []T

// UnmarshalJSON accepts any JSON value. A string is read as an array with that string; other values
// that are not an array are ignored.
func (l *list[T]) UnmarshalJSON(raw []byte) error {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		if raw[0] != '"' {
			return nil
		}
		all = []json.RawMessage{raw}
	}
	all = all[:min(len(all), maxList)]
	*l = make(list[T], len(all))
	for i, element := range all {
		var value T
		if json.Unmarshal(element, &value) == nil {
			(*l)[i] = value
		}
	}
	return nil
}

// A number is a count. Some programs write it as a string.
type number int64

// UnmarshalJSON accepts any JSON value. A value that is not a number is read as 0.
func (n *number) UnmarshalJSON(raw []byte) error {
	s := strings.Trim(string(raw), `"`)
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 {
		*n = number(min(f, reportfile.MaxCount))
	}
	return nil
}

// A text is a string. Any other JSON value is read as "".
type text string

// UnmarshalJSON accepts any JSON value.
func (t *text) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = text(reportfile.Text(s))
	}
	return nil
}
