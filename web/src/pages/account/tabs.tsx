import { Tabs } from '../../ui'

export function AccountTabs({ current }: { current: 'account' | 'dns' }) {
  return <Tabs label="Account" current={current} tabs={[{ id: 'account', name: 'Settings', href: '/account' }, { id: 'dns', name: 'DNS credentials', href: '/account/dns' }]} />
}
