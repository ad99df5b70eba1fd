package submit

import (
	"encoding/json"
	"testing"
)

func TestSendFieldsOfTwoForms(t *testing.T) {
	for _, bad := range []string{`{"to": 1}`, `{"to": ["a", 1]}`, `{"html": 1}`, `{"html": ["a"]}`} {
		if err := json.Unmarshal([]byte(bad), &SendEmailIn{}); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
	var in SendEmailIn
	if err := json.Unmarshal([]byte(`{"to": ["a@b", "c@d"], "html": "<p>"}`), &in); err != nil || len(in.To) != 2 || in.HTML.Text != "<p>" || in.HTML.OfBody {
		t.Errorf("%+v, %v", in, err)
	}
}
