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

// TestGroupsAreSearched: by parts of the address and of the name, in any case; the pages of a
// search go on with it.
func TestGroupsAreSearched(t *testing.T) {
	b := newSandbox(t, nil)
	b.box("ann")
	for email, name := range map[string]string{"sales@boxes.test": "Shop", "help@boxes.test": "Élan crew", "shopkeepers@boxes.test": ""} {
		b.post("/v1/groups", fmt.Sprintf(`{"email":%q,"name":%q,"members":[{"email":"ann@boxes.test"}]}`, email, name)).is(201)
	}
	for q, want := range map[string]int{"": 3, "SHOP": 2, "%C3%A9lan": 1, "boxes.test": 3, "nobody": 0} {
		if got := b.get("/v1/groups?q="+q).is(200).list("data", "email"); len(got) != want {
			t.Errorf("q=%s: %q", q, got)
		}
	}
	page := b.get("/v1/groups?q=shop&limit=1").is(200)
	cursor := page.text("pagination.cursor")
	if rest := b.get("/v1/groups?q=shop&limit=1&cursor="+cursor).is(200).list("data", "email"); len(rest) != 1 {
		t.Errorf("the second page has %q", rest)
	}
	b.get("/v1/groups?q=sales&limit=1&cursor="+cursor).fails(400, "invalid_cursor")
}
