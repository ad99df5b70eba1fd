package requests

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/service/core"
	"github.com/mailstead/mailstead/service/core/page"
	"github.com/mailstead/mailstead/store"
	"github.com/mailstead/mailstead/store/recordid"
	"github.com/mailstead/mailstead/store/requestlog"
)

// A RequestRow is one request to the API.
type RequestRow struct {
	// The server's own id of the request. Rows of the audit log and of the sending log have it too,
	// and so has the server's log.
	RequestID       string        `json:"request_id" words:"ours" example:"req_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	ClientRequestID *string       `json:"client_request_id" words:"theirs" example:"order-4711" rare:"true"` // The `X-Request-Id` that the client sent.
	At              core.Time     `json:"at"`                                                                // When it came.
	Method          string        `json:"method" words:"ours" example:"POST"`
	Path            string        `json:"path" words:"theirs" example:"/v1/email-users"` // Without the query.
	Operation       string        `json:"operation" words:"ours" example:"create_email_user"`
	Status          int           `json:"status" example:"400"` // The HTTP status of the answer.
	DurationMS      int64         `json:"duration_ms" example:"12"`
	Token           *RequestToken `json:"token"` // Null for the dashboard.
	IP              string        `json:"ip" words:"ours" example:"192.0.2.7"`
	ErrorCode       *string       `json:"error_code" words:"ours" example:"validation_error"`
}

// A RequestToken is the token of a request.
type RequestToken struct {
	ID   string `json:"id" words:"ours" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`
	Name string `json:"name" words:"theirs" example:"deploy script"`
}

// A RequestDetail is one request with what is kept of its body and of its answer.
type RequestDetail struct {
	RequestRow
	// The JSON body with the values of the fields that `x-loggable` marks. Of another value, or of
	// a body that could not be read, only its length in bytes is kept, as `{"length": 14}`. Null if
	// there was no body, and for people who sign in to their mailbox.
	Body json.RawMessage `json:"body" null:"true" words:"theirs"`
	// The answer in the same form, if its status is from 400 to 499.
	Answer json.RawMessage `json:"answer" null:"true" words:"theirs"`
}

// ListRequestsIn is the query of list_requests.
type ListRequestsIn struct {
	page.Query
	Operation   string `query:"operation" max:"100" example:"create_email_user"`
	Method      string `query:"method" enum:"GET|POST|PUT|PATCH|DELETE|"`
	Path        string `query:"path" max:"500" example:"/v1/email-users"`                     // A part of the path, such as an id.
	Status      *int   `query:"status" min:"100" max:"599" example:"400"`                     // The HTTP status.
	StatusClass *int   `query:"status_class" min:"2" max:"5" example:"4"`                     // All statuses that begin with this digit.
	TokenID     string `query:"token_id" max:"100" example:"tok_01k9a2b3c4d5e6f7g8h9j0k1m2"`  // The token's id.
	Via         string `query:"via" enum:"token|dashboard|"`                                  // Requests with any token, or those of the dashboard.
	RequestID   string `query:"request_id" max:"64" example:"req_01k9a2b3c4d5e6f7g8h9j0k1m2"` // The server's id or the client's.
}

// RequestIn names a request.
type RequestIn struct {
	ID string `path:"request_id"`
}

// The work of one request for a list is limited as in package page: a row that is dropped without
// being decoded costs 1, and one that is decoded costs decodeCost.
const (
	maxListCost = 16_000
	decodeCost  = 8
)

// ListRequests lists the requests to the API, newest first. Requests of the owner are shown to the
// owner alone.
func (s *Service) ListRequests(_ context.Context, who core.Actor, in ListRequestsIn) (*page.Page[RequestRow], error) {
	limit, err := in.PageSize(25, 100)
	if err != nil {
		return nil, err
	}
	number := func(n *int) string {
		if n == nil {
			return ""
		}
		return strconv.Itoa(*n)
	}
	filters := []string{in.Operation, in.Method, in.Path, number(in.Status), number(in.StatusClass), in.TokenID, in.Via, in.RequestID}
	from, err := page.Open(s.Core, who, "requests", in.Cursor, filters...)
	if err != nil {
		return nil, err
	}
	s.write()
	out := page.Builder[RequestRow]{Limit: limit}
	if !s.On() {
		return out.Page(nil), nil
	}
	cost, oldest := 0, s.oldest()
	has := page.HasTexts(in.Operation, in.Method, in.Path, in.TokenID, in.RequestID)
	err = s.log.Walk(who.AccountID, from, func(position string, row []byte) (more bool) {
		if cost >= maxListCost {
			out.More = true
			return false
		}
		cost++
		var r *Row
		if has(row) {
			cost += decodeCost
			r, _ = requestlog.Decode(row) // a damaged row is left out
		}
		if r == nil || !in.matches(r) || !maySee(who, r) || r.At.Before(oldest) {
			if len(out.Data) < out.Limit {
				out.Last = position
			}
			return true
		}
		return out.Add(position, rowOut(r), len(row))
	})
	if err != nil {
		return nil, err
	}
	return out.Page(func(position string) string { return page.Seal(s.Core, who, "requests", position, filters...) }), nil
}

func (in *ListRequestsIn) matches(r *Row) bool {
	return (in.Operation == "" || r.Operation == in.Operation) && (in.Method == "" || r.Method == in.Method) && strings.Contains(r.Path, in.Path) &&
		(in.Status == nil || r.Status == *in.Status) && (in.StatusClass == nil || r.Status/100 == *in.StatusClass) &&
		(in.TokenID == "" || r.TokenID == in.TokenID) && (in.Via == "" || (in.Via == "token") == (r.TokenID != "")) &&
		(in.RequestID == "" || r.ID == in.RequestID || r.ClientID == in.RequestID)
}

// maySee reports whether a caller who may read the log of an account may see a row of it.
func maySee(who core.Actor, r *Row) bool { return !r.Owner || who.Role == store.UserRoleOwner }

// GetRequest shows one request.
func (s *Service) GetRequest(_ context.Context, who core.Actor, in RequestIn) (*RequestDetail, error) {
	missing := core.NotFound("request in the request log")
	at, ok := recordid.Time(in.ID)
	if !ok || !recordid.Is("req", in.ID) || !s.On() || at.Before(s.oldest()) {
		return nil, missing
	}
	s.write()
	r, err := s.log.Find(who.AccountID, in.ID, at)
	if err != nil {
		return nil, err
	}
	if r == nil || !maySee(who, r) {
		return nil, missing
	}
	return &RequestDetail{rowOut(r), jsonOut(r.Body), jsonOut(r.Answer)}, nil
}

func rowOut(r *Row) RequestRow {
	out := RequestRow{
		RequestID: r.ID, ClientRequestID: core.OrNull(r.ClientID), At: core.Time{Time: r.At}, Method: r.Method, Path: r.Path, Operation: r.Operation,
		Status: r.Status, DurationMS: r.Duration, IP: r.IP, ErrorCode: core.OrNull(r.ErrorCode),
	}
	if r.TokenID != "" {
		out.Token = &RequestToken{r.TokenID, r.TokenName}
	}
	return out
}

// jsonOut returns the JSON that a row has, null if it has none.
func jsonOut(text []byte) json.RawMessage {
	if len(text) == 0 || !json.Valid(text) {
		return json.RawMessage("null")
	}
	return bytes.Clone(text)
}
