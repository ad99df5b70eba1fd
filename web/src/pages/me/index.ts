export { Me } from './me'
