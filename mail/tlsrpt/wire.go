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
		Org      lenientText             `json:"organization-name"`
		Range    wireRange               `json:"date-range"`
		Contact  lenientText             `json:"contact-info"`
		ID       lenientText             `json:"report-id"`
		Policies lenientList[wirePolicy] `json:"policies"`
	}
	wireRange struct {
		Start lenientText `json:"start-datetime"`
		End   lenientText `json:"end-datetime"`
	}
	wirePolicy struct {
		Policy   wirePolicyText           `json:"policy"`
		Summary  wireSummary              `json:"summary"`
		Failures lenientList[wireFailure] `json:"failure-details,omitempty"`
	}
	wirePolicyText struct {
		Type    lenientText              `json:"policy-type"`
		Strings lenientList[lenientText] `json:"policy-string,omitempty"`
		Domain  lenientText              `json:"policy-domain"`
		MXHosts lenientList[lenientText] `json:"mx-host,omitempty"`
	}
	wireSummary struct {
		Successful lenientNumber `json:"total-successful-session-count"`
		Failed     lenientNumber `json:"total-failure-session-count"`
	}
	wireFailure struct {
		Result      lenientText   `json:"result-type"`
		SendingIP   lenientText   `json:"sending-mta-ip,omitempty"`
		MXHost      lenientText   `json:"receiving-mx-hostname,omitempty"`
		MXHelo      lenientText   `json:"receiving-mx-helo,omitempty"`
		ReceivingIP lenientText   `json:"receiving-ip,omitempty"`
		Sessions    lenientNumber `json:"failed-session-count"`
		Reason      lenientText   `json:"failure-reason-code,omitempty"`
		Information lenientText   `json:"additional-information,omitempty"`
	}
)

// A lenientList is a JSON array. At most maxList elements are read. An element of the wrong type is
// read as a zero value.
type lenientList[T any] []T

// UnmarshalJSON accepts any JSON value. A string is read as an array with that string; other values
// that are not an array are ignored.
func (l *lenientList[T]) UnmarshalJSON(raw []byte) error {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		if raw[0] != '"' {
			return nil
		}
		all = []json.RawMessage{raw}
	}
	all = all[:min(len(all), maxList)]
	*l = make(lenientList[T], len(all))
	for i, element := range all {
		var value T
		if json.Unmarshal(element, &value) == nil {
			(*l)[i] = value
		}
	}
	return nil
}

// A lenientNumber is a count. Some programs write it as a string.
type lenientNumber int64

// UnmarshalJSON accepts any JSON value. A value that is not a number is read as 0.
func (n *lenientNumber) UnmarshalJSON(raw []byte) error {
	s := strings.Trim(string(raw), `"`)
	if f, err := strconv.ParseFloat(s, 64); err == nil && f > 0 {
		*n = lenientNumber(min(f, reportfile.MaxCount))
	}
	return nil
}

// A lenientText is a string. Any other JSON value is read as "".
type lenientText string

// UnmarshalJSON accepts any JSON value.
func (t *lenientText) UnmarshalJSON(raw []byte) error {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		*t = lenientText(reportfile.Text(s))
	}
	return nil
}
