import{j as o}from"./part-9c1ffa80319b5605.js";var e=o(null);export{e as a};
