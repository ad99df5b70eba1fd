package handlers

import (
	"fmt"
	"testing"
)

// TestAGroupWithoutANameHasAnEmptyOne: never null, whether none was given or it was taken away.
func TestAGroupWithoutANameHasAnEmptyOne(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	path := "/v1/groups/"
	made := func(email, name string) string {
		body := fmt.Sprintf(`{"email":%q,"members":[{"email":"ann@boxes.test"}]%s}`, email, name)
		return b.post("/v1/groups", body).is(201).has("name", "").text("id")
	}
	never := made("sales@boxes.test", "")
	made("help@boxes.test", `,"name":""`)
	made("news@boxes.test", `,"name":null`)
	for _, none := range []string{"null", `""`} {
		b.patch(path+never, `{"name":"Sales"}`).is(200).has("name", "Sales")
		b.patch(path+never, `{"name":`+none+`}`).is(200).has("name", "")
		b.get(path+never).has("name", "")
	}
	if names := b.get("/v1/groups").is(200).list("data", "name"); fmt.Sprintf("%q", names) != `["" "" ""]` {
		t.Errorf("the names are %q", names)
	}
}
