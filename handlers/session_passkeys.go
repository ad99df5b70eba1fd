package handlers

import (
	"context"
	"net/http"

	"github.com/mailstead/mailstead/service"
)

// origin is where the browser shows the dashboard.
func origin(r *http.Request) string {
	if isSecure(r) {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

func (s *Server) startPasskey(ctx context.Context, who service.Actor, in service.PasswordIn) (any, error) {
	return s.svc.StartPasskey(ctx, who, origin(callOf(ctx).r), in)
}

func (s *Server) addPasskey(ctx context.Context, who service.Actor, in service.NewPasskeyIn) (*service.Session, error) {
	return s.svc.AddPasskey(ctx, who, origin(callOf(ctx).r), in)
}

func (s *Server) offerPasskey(ctx context.Context, _ service.Actor) (any, error) {
	return s.svc.OfferPasskey(ctx, origin(callOf(ctx).r))
}

func (s *Server) usePasskey(ctx context.Context, _ service.Actor, in service.UsePasskeyIn) (*service.Session, error) {
	c := callOf(ctx)
	out, err := s.svc.UsePasskey(ctx, s.visitor(c), origin(c.r), in)
	if err != nil {
		return nil, s.logRefusal(c, "", err)
	}
	return s.setSession(c, out), nil
}
