import{j as o}from"./part-b91c9e60196bd878.js";var e=o(null);export{e as a};
